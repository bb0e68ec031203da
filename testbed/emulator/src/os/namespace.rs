//! Network namespaces of nodes.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

/// The network namespace of a node. `None` is this process's, which needs no privilege.
pub(crate) struct NetworkNamespace(Option<File>);

impl NetworkNamespace {
    /// The namespace of process `pid`; without it, of this process.
    pub(crate) fn of(pid: Option<u32>) -> Result<NetworkNamespace, String> {
        let open = |pid| {
            File::open(format!("/proc/{pid}/ns/net"))
                .map_err(|error| format!("cannot open the network namespace of process {pid}: {error}"))
        };
        pid.map(open).transpose().map(NetworkNamespace)
    }

    /// Runs `work` with this thread inside.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let Some(target) = &self.0 else { return work() };
        let home = File::open("/proc/thread-self/ns/net")
            .map_err(|error| format!("cannot open this process's network namespace: {error}"))?;
        enter(target).map_err(|error| format!("cannot enter a node's network namespace: {error}"))?;
        let result = work();
        enter(&home).map_err(|error| format!("cannot return to this process's network namespace: {error}"))?;
        result
    }
}

fn enter(namespace: &File) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}
