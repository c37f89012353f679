//! How many descriptors the sockets of calls may take: the last ones are kept for the admin endpoint and for files.
//!
//! The system gives a new socket the lowest number that is free (socket(2), accept(2)). A socket whose number is beyond
//! a bound thus says that all numbers below are in use; no counter is needed.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Descriptors that connections of calls leave free: for the connections of the admin endpoint, and for files that are
/// opened while the node runs.
pub const RESERVED: u64 = 64;
/// Where the limit is low, so large a part of it is kept: one in four.
const RESERVED_PART: u64 = 4;

/// The descriptors that connections may have. Workers share it.
#[derive(Clone, Debug)]
pub struct Descriptors {
    /// The number of a socket is below.
    bound: u64,
    n_refused: Arc<AtomicU64>,
}

impl Descriptors {
    /// Of a process that may have this many (`RLIMIT_NOFILE`); None: as many as it likes.
    pub fn of_limit(limit: Option<u64>) -> Self {
        let bound = limit.map_or(u64::MAX, |limit| limit - Self::reserved(limit));
        Self { bound, n_refused: Arc::default() }
    }

    /// How many of a limit are kept.
    pub fn reserved(limit: u64) -> u64 {
        RESERVED.min(limit / RESERVED_PART)
    }

    /// Connections that were refused for want of a descriptor, those to endpoints included.
    pub fn n_refused(&self) -> u64 {
        self.n_refused.load(Relaxed)
    }

    /// Whether a new socket may stay open. One that may not is counted.
    pub(crate) fn admit(&self, socket: RawFd) -> bool {
        let may_stay = u64::try_from(socket).is_ok_and(|number| number < self.bound);
        if !may_stay {
            self.note_refused();
        }
        may_stay
    }

    /// The system itself has refused one.
    pub(crate) fn note_refused(&self) {
        self.n_refused.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_descriptors_are_reserved() {
        // Clients could take every descriptor, and the operator could no longer ask the node what is wrong.
        let of = |limit| Descriptors::of_limit(Some(limit));
        assert!(of(20_000).admit(19_935) && !of(20_000).admit(19_936));
        assert!(of(128).admit(95) && !of(128).admit(96));
        assert!(Descriptors::of_limit(None).admit(RawFd::MAX));
        let shared = of(128);
        let worker = shared.clone();
        assert!(!worker.admit(100) && !worker.admit(127) && worker.admit(3));
        assert_eq!(shared.n_refused(), 2);
    }
}
