//! One end of an emulated link: a TAP of ours, or an interface that was there before.

use std::io;
use std::os::fd::RawFd;

use crate::sys::Network;
use crate::tap::Tap;
use crate::wire::Wire;

/// See the module.
pub(crate) enum Interface {
    Tap(Tap),
    Wire(Wire),
}

impl Interface {
    /// Takes over an existing interface of process `pid`'s network namespace; without `pid`, of this process's own.
    pub(crate) fn attach(pid: Option<u32>, name: &str, mac: Option<[u8; 6]>) -> Result<Interface, String> {
        let network = pid.map_or_else(Network::own, Network::of)?;
        Wire::attach(&network, name, mac).map(Interface::Wire)
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Interface::Tap(tap) => &tap.name,
            Interface::Wire(wire) => &wire.name,
        }
    }

    /// By which frames find the station on a medium with several.
    pub(crate) fn mac(&self) -> Option<[u8; 6]> {
        match self {
            Interface::Tap(tap) => tap.mac,
            Interface::Wire(wire) => wire.mac,
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        match self {
            Interface::Tap(tap) => tap.fd(),
            Interface::Wire(wire) => wire.fd(),
        }
    }

    /// Frames that the kernel dropped before they were read; `None` where the interface is gone.
    pub(crate) fn overflowed(&self) -> Option<u64> {
        match self {
            Interface::Tap(tap) => tap.overflowed(),
            Interface::Wire(wire) => wire.overflowed(),
        }
    }

    pub(crate) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self {
            Interface::Tap(tap) => tap.read(buffer),
            Interface::Wire(wire) => wire.read(buffer),
        }
    }

    pub(crate) fn write(&mut self, frame: &[u8]) -> bool {
        match self {
            Interface::Tap(tap) => tap.write(frame),
            Interface::Wire(wire) => wire.write(frame),
        }
    }
}
