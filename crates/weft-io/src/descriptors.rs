//! Limits the file descriptors of calls: the last ones are reserved for the admin endpoint and for files.
//!
//! The system gives a new socket the lowest free number (socket(2), accept(2)). So a number beyond the bound means that
//! all lower ones are in use; no counter is needed.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Descriptors that connections of calls leave free: for connections of the admin endpoint, and for files that are
/// opened at run time.
pub const RESERVED: u64 = 64;
/// With a low limit, one descriptor in this many is reserved.
const RESERVED_PART: u64 = 4;

/// The limit on descriptors of connections. Workers share it.
#[derive(Clone, Debug)]
pub struct Descriptors {
    /// Descriptors of connections are below this number.
    bound: u64,
    n_refused: Arc<AtomicU64>,
}

impl Descriptors {
    /// For a process with this limit (`RLIMIT_NOFILE`); None: unlimited.
    pub fn of_limit(limit: Option<u64>) -> Self {
        let bound = limit.map_or(u64::MAX, |limit| limit - Self::reserved(limit));
        Self { bound, n_refused: Arc::default() }
    }

    /// Number of reserved descriptors for a limit.
    pub fn reserved(limit: u64) -> u64 {
        RESERVED.min(limit / RESERVED_PART)
    }

    /// Number of connections that were refused because there was no descriptor, outgoing ones included.
    pub fn n_refused(&self) -> u64 {
        self.n_refused.load(Relaxed)
    }

    /// Whether a new socket may stay open. Counts those that may not.
    pub(crate) fn admit(&self, socket: RawFd) -> bool {
        let may_stay = u64::try_from(socket).is_ok_and(|number| number < self.bound);
        if !may_stay {
            self.count_refused();
        }
        may_stay
    }

    /// Counts a refusal by the system itself.
    pub(crate) fn count_refused(&self) {
        self.n_refused.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_descriptors_are_reserved() {
        // Clients could use every descriptor, and the operator could no longer query the node.
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
