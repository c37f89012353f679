//! Network namespaces for a test. They are unnamed, so they disappear with the last descriptor, however the test ends.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use weft_io::packet::interface;

/// A network namespace.
pub(crate) struct Namespace {
    file: File,
}

impl Namespace {
    pub(crate) fn new() -> io::Result<Self> {
        let make = || {
            // SAFETY: the call takes no memory; it moves only this thread, which ends here.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let file = File::open("/proc/thread-self/ns/net")?;
            interface::set_up("lo", true).map_err(io::Error::other)?;
            // Interfaces would send packets on their own as soon as they are up. A kernel without IPv6 has no such
            // file.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            Ok(Self { file })
        };
        std::thread::scope(|scope| scope.spawn(make).join().expect("the thread does not panic"))
    }

    /// Runs a function in it, on a new thread.
    pub(crate) fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.join();
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves this thread into it.
    pub(crate) fn join(&self) {
        // SAFETY: the descriptor is open, and the call moves only this thread.
        let joined = unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(joined, 0, "{}", io::Error::last_os_error());
    }
}

/// Two ends, and the middle that connects them.
pub(crate) struct World {
    pub(crate) a: Namespace,
    pub(crate) middle: Namespace,
    pub(crate) b: Namespace,
}

pub(crate) const ADDRESS_A: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 1);
pub(crate) const ADDRESS_B: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 2);
/// The prefix length of both ends' network.
pub(crate) const PREFIX: u8 = 24;

impl World {
    /// Creates the three, or returns why the machine does not permit it.
    pub(crate) fn new() -> Result<Self, String> {
        let namespace = || Namespace::new().map_err(|error| format!("no network namespace: {error}"));
        Ok(Self { a: namespace()?, middle: namespace()?, b: namespace()? })
    }

    /// Connects the ends to the middle by veth pairs: `a` and `b` in the ends, `to_a` and `to_b` in the middle.
    pub(crate) fn join_by_veth(&self) {
        self.middle.enter(|| {
            for (name, end) in [("to_a", "a"), ("to_b", "b")] {
                interface::make_veth(name, end, None).expect("the test runs as root");
                interface::set_up(name, true).expect("the interface exists");
            }
        });
        self.move_to_ends();
    }

    /// Moves `a` and `b` from the middle to their ends.
    pub(crate) fn move_to_ends(&self) {
        for (end, name, address) in [(&self.a, "a", ADDRESS_A), (&self.b, "b", ADDRESS_B)] {
            self.middle.enter(|| interface::move_to(name, &end.file).expect("the test runs as root"));
            end.enter(|| {
                interface::add_address(name, address.into(), PREFIX).expect("the test runs as root");
                interface::set_up(name, true).expect("the interface exists");
            });
        }
    }
}
