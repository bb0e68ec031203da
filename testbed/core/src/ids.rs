//! Numbers of the parts of a run: places in its lists, with a type for each list, so that none is taken for another.

use std::iter::FromIterator;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

/// An end of a link: 0 and 1 for a link with two ends, more for a shared medium.
pub type Port = u16;

/// A place in a list of its own.
pub trait Id: Copy {
    /// The id of a place, which counts from 0.
    fn new(place: usize) -> Self;

    /// The place.
    fn place(self) -> usize;
}

macro_rules! ids {
    ($($name:ident: $of:literal;)*) => {$(
        #[doc = concat!("Number of a ", $of, ".")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl Id for $name {
            #[inline(always)]
            fn new(place: usize) -> $name {
                $name(place as u32)
            }

            #[inline(always)]
            fn place(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
ids! {
    NodeId: "node";
    LinkId: "link";
    FlowId: "flow of the workload";
    ConnectionId: "connection, an end of one counted by itself";
}

/// A list whose places are ids of one type.
#[derive(Clone, Debug)]
pub struct Numbered<I, T>(Vec<T>, PhantomData<I>);

impl<I: Id, T> Numbered<I, T> {
    /// Appends an item. Returns its id.
    pub fn push(&mut self, item: T) -> I {
        self.0.push(item);
        I::new(self.0.len() - 1)
    }

    /// The id of the next item that is appended.
    pub fn next_id(&self) -> I {
        I::new(self.0.len())
    }

    /// The ids of all items.
    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.0.len()).map(I::new)
    }

    /// The item of an id, if there is one.
    pub fn find(&mut self, id: I) -> Option<&mut T> {
        self.0.get_mut(id.place())
    }
}

impl<I, T> Default for Numbered<I, T> {
    fn default() -> Numbered<I, T> {
        Numbered(Vec::new(), PhantomData)
    }
}

impl<I, T> FromIterator<T> for Numbered<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(items: A) -> Numbered<I, T> {
        Numbered(items.into_iter().collect(), PhantomData)
    }
}

impl<I, T> IntoIterator for Numbered<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<I, T> Deref for Numbered<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<I, T> DerefMut for Numbered<I, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<I: Id, T> Index<I> for Numbered<I, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: I) -> &T {
        &self.0[id.place()]
    }
}

impl<I: Id, T> IndexMut<I> for Numbered<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.0[id.place()]
    }
}
