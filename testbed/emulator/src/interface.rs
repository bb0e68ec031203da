//! One end of an emulated link: a TAP of ours, or an interface that existed before.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use backchannel_core::Error;

use crate::attached::Attached;
use crate::os::link_layer::LinkLayer;
use crate::os::namespace::NetworkNamespace;
use crate::tap::Tap;

/// An end of a link.
pub(crate) enum Interface {
    Tap(Tap),
    Attached(Attached),
}

impl Interface {
    /// Takes over an existing interface in the network namespace of process `pid`, or of this process.
    pub(crate) fn attach(pid: Option<u32>, name: &str, mac: Option<[u8; 6]>) -> Result<Interface, Error> {
        Attached::open(&NetworkNamespace::of(pid)?, name, mac).map(Interface::Attached)
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Interface::Tap(tap) => &tap.name,
            Interface::Attached(attached) => &attached.name,
        }
    }

    /// MAC address of the station at this end, by which frames on a shared medium find it.
    pub(crate) fn mac(&self) -> Option<[u8; 6]> {
        match self {
            Interface::Tap(tap) => tap.mac,
            Interface::Attached(attached) => attached.mac,
        }
    }

    pub(crate) fn link_layer(&self) -> LinkLayer {
        match self {
            Interface::Tap(tap) => tap.link_layer(),
            Interface::Attached(attached) => attached.link_layer(),
        }
    }

    /// Frames that the kernel dropped before they were read. `None` if the interface is gone.
    pub(crate) fn overflowed(&self) -> Option<u64> {
        match self {
            Interface::Tap(tap) => tap.overflowed(),
            Interface::Attached(attached) => attached.overflowed(),
        }
    }

    /// The next frame, or `None`.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self {
            Interface::Tap(tap) => tap.read(buffer),
            Interface::Attached(attached) => attached.read(buffer),
        }
    }

    /// Writes a frame. False if the interface does not accept it.
    pub(crate) fn write(&mut self, frame: &[u8]) -> bool {
        match self {
            Interface::Tap(tap) => tap.write(frame),
            Interface::Attached(attached) => attached.write(frame),
        }
    }
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Interface::Tap(tap) => tap.as_fd(),
            Interface::Attached(attached) => attached.as_fd(),
        }
    }
}
