//! Reassembly of IP fragments (RFC 791 3.2, RFC 8200 4.5). Only the TCP header is kept, and the lengths.

use std::collections::VecDeque;

use crate::packet::{Address, IpContext, NoTcp};

/// Packets under reassembly at a time; the oldest is given up first.
const MAX_OPEN: usize = 1024;
/// Separate pieces of one packet; with more it is given up.
const MAX_PIECES: usize = 128;
/// Longest TCP header.
const MAX_HEADER: usize = 60;

/// One fragment of a packet.
pub(crate) struct Fragment<'a> {
    /// Identification field.
    pub(crate) id: u32,
    /// Offset of its data, in bytes.
    pub(crate) offset: u32,
    /// More fragments follow.
    pub(crate) more: bool,
    pub(crate) data: &'a [u8],
    /// The IP layer around it; `tcp_len` is the length of this fragment's data.
    pub(crate) context: IpContext,
}

/// A packet whose fragments have all been captured.
pub(crate) struct Reassembled {
    pub(crate) context: IpContext,
    /// The first bytes of the TCP segment.
    header: [u8; MAX_HEADER],
    header_len: usize,
}

impl Reassembled {
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..self.header_len]
    }
}

/// Packets under reassembly.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    open: VecDeque<Partial>,
    given_up: u64,
}

#[derive(Debug)]
struct Partial {
    key: (Address, Address, u32),
    /// Disjoint ranges that were captured, in order.
    pieces: Vec<(u32, u32)>,
    /// Length of the whole, once the last fragment was captured.
    end: Option<u32>,
    header: [u8; MAX_HEADER],
    /// Bytes of `header` that were captured.
    known: [bool; MAX_HEADER],
    ip_len: u32,
    context: IpContext,
}

impl Fragments {
    /// Packets of which fragments are missing.
    pub(crate) fn unfinished(&self) -> u64 {
        self.given_up + self.open.len() as u64
    }

    /// Takes a fragment. Returns the packet if it is complete.
    #[cold]
    pub(crate) fn add(&mut self, fragment: &Fragment<'_>) -> Result<Reassembled, NoTcp> {
        let index = self.index_of(fragment);
        let partial = &mut self.open[index];
        partial.add(fragment);
        if partial.pieces.len() > MAX_PIECES {
            self.open.remove(index);
            self.given_up += 1;
            return Err(NoTcp::Truncated);
        }
        let complete = partial.pieces[0].0 == 0 && partial.end.is_some_and(|end| partial.pieces[0].1 >= end);
        if !complete {
            return Err(NoTcp::Incomplete);
        }
        let partial = self.open.remove(index).expect("the index is in range");
        let tcp_len = partial.end.expect("a complete packet has an end");
        Ok(Reassembled {
            // The TCP checksum would need all the data.
            context: IpContext { ip_len: partial.ip_len, tcp_len, address_sum: None, ..partial.context },
            header: partial.header,
            header_len: partial.known.iter().take_while(|&&known| known).count(),
        })
    }

    fn index_of(&mut self, fragment: &Fragment<'_>) -> usize {
        let context = fragment.context;
        let key = (context.src, context.dst, fragment.id);
        if let Some(index) = self.open.iter().position(|partial| partial.key == key) {
            return index;
        }
        if self.open.len() == MAX_OPEN {
            self.open.pop_front();
            self.given_up += 1;
        }
        self.open.push_back(Partial {
            key,
            pieces: Vec::new(),
            end: None,
            header: [0; MAX_HEADER],
            known: [false; MAX_HEADER],
            ip_len: 0,
            context,
        });
        self.open.len() - 1
    }
}

impl Partial {
    fn add(&mut self, fragment: &Fragment<'_>) {
        let Fragment { offset, more, data, context, .. } = *fragment;
        self.ip_len = self.ip_len.saturating_add(context.ip_len);
        self.context.header_ok &= context.header_ok;
        self.context.ecn = self.context.ecn.max(context.ecn);
        let end = offset.saturating_add(context.tcp_len);
        if !more {
            self.end = Some(end);
        }
        let captured = data.len().min(context.tcp_len as usize);
        let start = offset as usize;
        for at in start..(start + captured).min(MAX_HEADER) {
            self.header[at] = data[at - start];
            self.known[at] = true;
        }
        self.pieces.push((offset, end));
        self.pieces.sort_unstable();
        self.pieces.dedup_by(|later, before| {
            let touch = later.0 <= before.1;
            if touch {
                before.1 = before.1.max(later.1);
            }
            touch
        });
    }
}
