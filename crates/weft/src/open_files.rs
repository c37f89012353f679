//! How many files and sockets the process may have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to what the system lets this user have. Shells and service managers start programs with 1,024 for
/// the sake of old ones that use `select`; a node has a socket for each connection.
///
/// If the system refuses, the old limit stays, and a connection beyond it is refused and counted.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The limit that holds; None if there is none.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
