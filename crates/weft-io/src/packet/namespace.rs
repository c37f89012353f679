//! Opens and creates the network namespaces of ports, and runs code in them.

#![expect(unsafe_code, reason = "the standard library cannot move a thread to another namespace")]

use super::OpenError;
use super::interface;
use super::sys::fail;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::path::PathBuf;

/// Where `ip netns` keeps named namespaces.
const NAMED: &str = "/run/netns";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Opens the namespace with this `ip netns` name; a name with a `/` is the path of its file.
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let path = if name.contains('/') { PathBuf::from(name) } else { PathBuf::from(NAMED).join(name) };
        let absent = |error: io::Error| OpenError {
            help: (error.kind() == io::ErrorKind::NotFound)
                .then_some("`ip netns list` lists those that there are, `ip netns add` makes one"),
            ..fail(name, "open the network namespace", error)
        };
        Ok(Self { name: name.to_owned(), file: File::open(path).map_err(absent)? })
    }

    /// Its path, by which this process can open it again while this value lives.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Creates an unnamed namespace with `lo` up. It disappears with its last descriptor and process.
    ///
    /// # Errors
    /// Permission is denied (`CAP_SYS_ADMIN`).
    pub fn make() -> Result<Self, OpenError> {
        const NAME: &str = "(new)";
        let make = || {
            // SAFETY: the call takes no memory; it moves only this thread, which ends here.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(fail(NAME, "make a network namespace", io::Error::last_os_error()));
            }
            let file = File::open("/proc/thread-self/ns/net")
                .map_err(|error| fail(NAME, "open the network namespace", error))?;
            interface::set_up("lo", true)?;
            Ok(Self { name: NAME.to_owned(), file })
        };
        run_on_thread(make)
    }

    /// Moves the whole process into a new user namespace and network namespace, where it may create interfaces and
    /// namespaces without privileges outside. User and files stay the same; `lo` is up, and there is no other
    /// interface.
    ///
    /// # Errors
    /// The machine does not permit it, or the process has more than one thread.
    pub fn enter_own() -> Result<(), OpenError> {
        const NAME: &str = "(own)";
        // SAFETY: the calls take no memory and cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        // SAFETY: the call takes no memory; a process with threads is refused.
        if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) } != 0 {
            let error = io::Error::last_os_error();
            return Err(OpenError {
                help: Some(
                    "run as root, or permit user namespaces: `sysctl kernel.unprivileged_userns_clone=1`",
                ),
                ..fail(NAME, "make a user namespace", error)
            });
        }
        let map = |file: &str, text: String| {
            std::fs::write(file, text).map_err(|error| fail(NAME, "keep user and group", error))
        };
        map("/proc/self/setgroups", "deny".to_owned())?;
        map("/proc/self/uid_map", format!("{user} {user} 1"))?;
        map("/proc/self/gid_map", format!("{group} {group} 1"))?;
        interface::set_up("lo", true)
    }

    /// Runs a function in the namespace, on a new thread. Processes and sockets created there stay in it.
    ///
    /// # Errors
    /// Permission to enter it is denied (`CAP_SYS_ADMIN`).
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, OpenError> {
        run_on_thread(|| {
            // SAFETY: the descriptor is open, and the call moves only this thread, which ends here.
            if unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                let error = io::Error::last_os_error();
                return Err(fail(&self.name, "enter the network namespace", error));
            }
            Ok(work())
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Runs a function on a new thread and returns its result; a panic continues here.
fn run_on_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
