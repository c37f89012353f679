//! Drops capabilities: a node keeps only what changes at run time need.
//!
//! Capabilities belong to threads, and a new thread inherits those of its creator (capabilities(7)). So the command
//! drops them before the node starts threads; older threads drop their own.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use std::io;

/// Needed for changes at run time: listeners on ports below 1024, and devices that are opened again. Capabilities to
/// open other users' files are not included: an update names the files of sinks and keys, and the paths of sockets.
const FOR_CHANGES: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF);

/// Which of its capabilities a thread keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptCapabilities {
    /// For opening ports: those for changes with any ports, and SYS_PTRACE, which finds the network namespace of
    /// another process.
    ForOpening,
    /// NET_BIND_SERVICE, NET_ADMIN, NET_RAW and BPF, and what these ports need.
    ForChanges(PortNeeds),
    /// None.
    Nothing,
}

/// Additional needs of a program's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortNeeds {
    /// A port is in another network namespace; entering it needs SYS_ADMIN.
    pub namespace: bool,
    /// A port has XDP buffers; IPC_LOCK lets the kernel lock them whatever `RLIMIT_MEMLOCK` is.
    pub xdp: bool,
}

/// Permanently drops all other capabilities of this thread and of those that it starts; programs that they run do not
/// regain them.
///
/// # Errors
/// The system refuses.
pub fn reduce(keep: KeptCapabilities) -> io::Result<()> {
    let only_if = |needed: bool, capability| if needed { capability } else { CapabilitySet::empty() };
    let kept = match keep {
        KeptCapabilities::ForOpening => {
            FOR_CHANGES | CapabilitySet::SYS_ADMIN | CapabilitySet::IPC_LOCK | CapabilitySet::SYS_PTRACE
        }
        KeptCapabilities::ForChanges(PortNeeds { namespace, xdp }) => {
            FOR_CHANGES | only_if(namespace, CapabilitySet::SYS_ADMIN) | only_if(xdp, CapabilitySet::IPC_LOCK)
        }
        KeptCapabilities::Nothing => CapabilitySet::empty(),
    };
    let held = capabilities(None)?;
    let (effective, permitted) = (held.effective & kept, held.permitted & kept);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    Ok(set_no_new_privs(true)?)
}

/// The effective capabilities of this thread, by name without `CAP_`.
pub fn held() -> Vec<&'static str> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    held.iter_names().map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduced_thread_keeps_needed_rights() {
        // A node that runs as root could still open every file of the machine.
        let all = held();
        std::thread::spawn(move || {
            let changes = ["NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW", "BPF"];
            let of = |kept: &[&str]| all.iter().copied().filter(|c| kept.contains(c)).collect::<Vec<_>>();
            reduce(KeptCapabilities::ForOpening).expect("a thread may drop its capabilities");
            assert_eq!(held(), of(&[&changes[..], &["SYS_ADMIN", "IPC_LOCK", "SYS_PTRACE"]].concat()));
            for (namespace, xdp, others) in [
                (true, true, &["SYS_ADMIN", "IPC_LOCK"][..]),
                (false, true, &["IPC_LOCK"]),
                (false, false, &[]),
            ] {
                let keep = KeptCapabilities::ForChanges(PortNeeds { namespace, xdp });
                reduce(keep).expect("a thread may drop its capabilities");
                assert_eq!(held(), of(&[&changes[..], others].concat()));
            }
            let younger = std::thread::spawn(held).join().expect("the thread does not panic");
            assert_eq!(younger, held(), "a thread begins with those of its parent");
            reduce(KeptCapabilities::Nothing).expect("a thread may drop its capabilities");
            assert_eq!(held(), [""; 0]);
            reduce(KeptCapabilities::ForOpening).expect("all requested capabilities are held");
            assert_eq!(held(), [""; 0], "they do not come back");
            let status = std::process::Command::new("grep").args(["CapEff:", "/proc/self/status"]).output();
            let status =
                String::from_utf8(status.expect("the command runs").stdout).expect("the output is text");
            assert_eq!(
                status.split_whitespace().last(),
                Some("0000000000000000"),
                "a program has them again"
            );
        })
        .join()
        .expect("the thread does not panic");
    }
}
