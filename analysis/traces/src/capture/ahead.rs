//! Reads a capture on a thread of its own, ahead of the one that uses its frames.
//!
//! Reading is half of the work: the kernel's copying of the file and the search for the records in it. Frames travel in
//! batches that fit into a processor's cache.

use std::ops::Range;
use std::sync::mpsc::sync_channel;
use std::thread::{scope, Scope};

use super::source::CHUNK;
use super::{Capture, Frame};

/// Batches under way. One is filled while another is used.
const BATCHES: usize = 4;

/// Frames with copies of their bytes.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    frames: Vec<Place>,
}

/// A frame of a batch.
struct Place {
    time_ns: i64,
    data: Range<u32>,
    wire_len: u32,
    link_type: u16,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK
    }

    #[inline]
    fn push(&mut self, frame: &Frame) {
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(frame.data);
        let Frame { time_ns, link_type, wire_len, .. } = *frame;
        self.frames.push(Place { time_ns, data: from..self.bytes.len() as u32, wire_len, link_type });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }

    fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.frames.iter().map(|place| Frame {
            time_ns: place.time_ns,
            link_type: place.link_type,
            wire_len: place.wire_len,
            data: &self.bytes[place.data.start as usize..place.data.end as usize],
        })
    }
}

impl Capture {
    /// Gives all frames to `each`, in file order, until one is an error. With `ahead` another thread reads them.
    ///
    /// # Errors
    /// The one of `each`.
    pub(crate) fn for_each(
        &mut self,
        ahead: bool,
        mut each: impl FnMut(&Frame) -> Result<(), String>,
    ) -> Result<(), String> {
        if ahead {
            return scope(|scope| self.read_ahead(scope, each));
        }
        while let Some(frame) = self.next() {
            each(&frame)?;
        }
        Ok(())
    }

    fn read_ahead<'scope>(
        &'scope mut self,
        scope: &'scope Scope<'scope, '_>,
        mut each: impl FnMut(&Frame) -> Result<(), String>,
    ) -> Result<(), String> {
        let (to, from) = sync_channel::<Batch>(BATCHES);
        let (give_back, used) = sync_channel::<Batch>(BATCHES);
        scope.spawn(move || {
            let mut batch = Batch::default();
            while let Some(frame) = self.next() {
                batch.push(&frame);
                if batch.is_full() {
                    if to.send(batch).is_err() {
                        return;
                    }
                    batch = used.try_recv().unwrap_or_default();
                }
            }
            // Whoever uses them has met an error.
            let _ = to.send(batch);
        });
        for mut batch in from {
            batch.frames().try_for_each(|frame| each(&frame))?;
            batch.clear();
            let _ = give_back.try_send(batch);
        }
        Ok(())
    }
}
