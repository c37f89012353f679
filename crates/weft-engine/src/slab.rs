//! A slab: stores values under generational keys. The key of a removed value finds nothing.

/// A key: the slot, and its generation.
pub(crate) struct Key<T> {
    index: u32,
    generation: u32,
    of: core::marker::PhantomData<fn() -> T>,
}

impl<T> core::fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Key<T> {}

impl<T> Key<T> {
    /// The key as a number, for callers that only carry it.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The inverse of [`Key::to_bits`].
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32, of: core::marker::PhantomData }
    }
}

/// A store for values of one type.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Stores a value and returns its key.
    pub(crate) fn insert(&mut self, value: T) -> Key<T> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(value);
        Key { index, generation: slot.0, of: core::marker::PhantomData }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key<T>) -> Option<&T> {
        let (generation, value) = self.slots.get(key.index as usize)?;
        value.as_ref().filter(|_| *generation == key.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(key.index as usize)?;
        value.as_mut().filter(|_| *generation == key.generation)
    }

    /// Removes the value of a key. None if it was removed before.
    pub(crate) fn remove(&mut self, key: Key<T>) -> Option<T> {
        let (generation, value) = self.slots.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let value = value.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|(_, value)| value.as_mut())
    }

    /// Returns all values with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, value))| {
            let key = Key { index: index as u32, generation: *generation, of: core::marker::PhantomData };
            Some((key, value.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If it failed, a late event for a removed call would reach the call in the same slot.
    #[test]
    fn stale_key_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(Key::from_bits(second.to_bits())), Some(&'b'));
        assert_eq!(slab.len(), 1);
    }
}
