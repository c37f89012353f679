//! The limit on open files and sockets of this process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to the hard limit of this user. Shells and service managers start programs with 1,024, for old
/// programs that use `select`; a node has a socket for each connection.
///
/// If the system refuses, the old limit stays. A connection above it is refused and counted.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The current limit; None if there is none.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
