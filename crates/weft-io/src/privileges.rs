//! Capabilities: a node keeps those that it needs to change while it runs, and gives up the others.
//!
//! They belong to threads, and a thread begins with those of the one that starts it (capabilities(7)). So the command
//! that runs a node gives them up before the node has threads, and threads that are older by themselves.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use std::io;

/// What changes need while a node runs: listeners on ports below 1024, and devices that are opened again. What opens
/// files of other users is not among them: an update names the files of sinks and keys, and the paths of sockets.
const FOR_CHANGES: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF);

/// Which capabilities a thread keeps, of those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptCapabilities {
    /// What opens ports, wherever they are: what changes need with any ports, and SYS_PTRACE, which finds the network
    /// namespace of another process.
    ForOpening,
    /// NET_BIND_SERVICE, NET_ADMIN, NET_RAW and BPF, and what some ports need besides.
    ForChanges(PortNeeds),
    /// None.
    Nothing,
}

/// What the ports of a program need besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortNeeds {
    /// One is in another network namespace, which SYS_ADMIN enters.
    pub namespace: bool,
    /// One has buffers that XDP shares, which IPC_LOCK lets the kernel lock whatever `RLIMIT_MEMLOCK` says.
    pub xdp: bool,
}

/// Has this thread, and those that it starts from now on, give up all other capabilities for good: programs that they
/// run do not get them back.
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

/// The capabilities that this thread may use, by their names without `CAP_`.
pub fn held() -> Vec<&'static str> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    held.iter_names().map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduced_thread_keeps_needed_rights() {
        // A node that runs as root could go on opening every file of the machine.
        let all = held();
        std::thread::spawn(move || {
            let changes = ["NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW", "BPF"];
            let of = |kept: &[&str]| all.iter().copied().filter(|c| kept.contains(c)).collect::<Vec<_>>();
            reduce(KeptCapabilities::ForOpening).expect("a thread may give up what it has");
            assert_eq!(held(), of(&[&changes[..], &["SYS_ADMIN", "IPC_LOCK", "SYS_PTRACE"]].concat()));
            for (namespace, xdp, others) in [
                (true, true, &["SYS_ADMIN", "IPC_LOCK"][..]),
                (false, true, &["IPC_LOCK"]),
                (false, false, &[]),
            ] {
                let keep = KeptCapabilities::ForChanges(PortNeeds { namespace, xdp });
                reduce(keep).expect("a thread may give up what it has");
                assert_eq!(held(), of(&[&changes[..], others].concat()));
            }
            let younger = std::thread::spawn(held).join().expect("no panic");
            assert_eq!(younger, held(), "a thread begins with those of its parent");
            reduce(KeptCapabilities::Nothing).expect("a thread may give up what it has");
            assert_eq!(held(), [""; 0]);
            reduce(KeptCapabilities::ForOpening).expect("it asks for nothing that it has not");
            assert_eq!(held(), [""; 0], "they do not come back");
            let status = std::process::Command::new("grep").args(["CapEff:", "/proc/self/status"]).output();
            let status = String::from_utf8(status.expect("it is there").stdout).expect("it is text");
            assert_eq!(
                status.split_whitespace().last(),
                Some("0000000000000000"),
                "a program has them again"
            );
        })
        .join()
        .expect("no panic");
    }
}
