//! Network namespaces of nodes.

use std::fs::File;
use std::os::fd::AsFd;

use backchannel_core::{Error, ResultExt};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

/// The network namespace of a node. `None` is this process's, which needs no privilege.
pub(crate) struct NetworkNamespace(Option<File>);

impl NetworkNamespace {
    /// The namespace of process `pid`; without it, of this process.
    pub(crate) fn of(pid: Option<u32>) -> Result<NetworkNamespace, Error> {
        let open = |pid| {
            File::open(format!("/proc/{pid}/ns/net"))
                .or_system(format_args!("cannot open the network namespace of process {pid}"))
        };
        pid.map(open).transpose().map(NetworkNamespace)
    }

    /// Runs `work` with this thread inside.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let Some(target) = &self.0 else { return work() };
        let home = File::open("/proc/thread-self/ns/net").or_system("cannot open this process's network namespace")?;
        enter(target).or_system("cannot enter a node's network namespace")?;
        let result = work();
        enter(&home).or_system("cannot return to this process's network namespace")?;
        result
    }
}

fn enter(namespace: &File) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}
