//! This machine: its resolver, its keys and its memory, as a compilation needs them.

use crate::job;
use crate::private::{self, ForbiddenAccess};
use crate::seeds::random_bytes;
use std::io::Read as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_control::check::{Checked, WORKERS_JUDGED, check};
use weft_control::files::Files;
use weft_control::host::Host;
use weft_control::memory::MemoryLimit;
use weft_core::Value;
use weft_core::native::{NativeDecl, PrepareError, Prepared};
use weft_lang::hir::Network;
use weft_native::{KEY_BYTES_MAX, Secrets, is_key_public, prepare};
use zeroize::Zeroizing;

/// This machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine;

impl Host for Machine {
    fn resolve(&self, name: &str) -> Result<SocketAddr, String> {
        let mut found = name.to_socket_addrs().map_err(|error| error.to_string())?;
        found.next().ok_or_else(|| "it has no address".to_owned())
    }

    fn prepare(&self, decl: &NativeDecl) -> Result<Arc<dyn Prepared>, PrepareError> {
        let key = key_of(decl).map_err(PrepareError::Key)?;
        let no_entropy = |_| PrepareError::Key("the system gives no random bytes for its nonces".to_owned());
        let entropy = random_bytes().map_err(no_entropy)?;
        prepare(decl, &Secrets { key: key.as_ref().map(|key| key.as_slice()), entropy })
    }
}

/// Checks the program that starts with `root` on this machine, as a [`job`].
pub(crate) fn check_files(root: &str, files: &mut Files) -> Checked {
    check_for(root, files, |_| WORKERS_JUDGED)
}

/// As [`check_files`], for a node that runs the program with `workers` workers.
pub(crate) fn check_for(
    root: &str,
    files: &mut Files,
    workers: impl Fn(&Network) -> usize + Send,
) -> Checked {
    let checked = job::run(|| check(root, files, workers, &Machine));
    checked.unwrap_or_else(|broken| Checked::failed(broken.diagnostic()))
}

/// As [`check_files`], with a memory limit in bytes for the program on one worker.
pub(crate) fn check_with_limit(root: &str, files: &mut Files, memory: Option<u64>) -> Checked {
    let checked = check_files(root, files);
    match memory {
        Some(bytes) => checked.with_limit(&MemoryLimit::given(bytes)),
        None => checked,
    }
}

/// The memory limit of a node: that of the option `--memory`, or that of the control group of this process, if any.
pub(crate) fn memory_limit(option: Option<u64>) -> Option<MemoryLimit> {
    option.map(MemoryLimit::given).or_else(|| {
        let membership = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        least(&membership, Path::new("/sys/fs/cgroup")).map(MemoryLimit::of_group)
    })
}

/// The least limit of a process's control group and of the groups above it; None without a limit. `membership` is the
/// text of `/proc/self/cgroup`, and `root` is the folder of the groups.
fn least(membership: &str, root: &Path) -> Option<u64> {
    let limit = |file: &Path| -> Option<u64> {
        // Version 2 has `max` for no limit, version 1 a number larger than any memory.
        let bytes = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        (bytes < 1 << 60).then_some(bytes)
    };
    let of_line = |line: &str| {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, group) = (words.next()?, words.next()?);
        let (base, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|of| of == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // A container may see the name that its group has outside, where the path does not exist.
        let group: PathBuf = base.join(group.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|at| at.starts_with(&base)).map(Path::to_path_buf);
        groups.filter_map(|at| limit(&at.join(file))).min()
    };
    membership.lines().filter_map(of_line).min()
}

/// The bytes of the key that a declaration names. They are overwritten after use.
fn key_of(decl: &NativeDecl) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let text = |name: &str| match decl.options.iter().find(|(known, _)| known == name) {
        Some((_, Value::Bytes(text))) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    if let Some(path) = text("key_file") {
        let others = if is_key_public(decl) { ForbiddenAccess::Write } else { ForbiddenAccess::ReadOrWrite };
        let key = read_key(Path::new(&path), others);
        return key.map(Some).map_err(|error| format!("its key `{path}` cannot be read: {error}"));
    }
    let Some(name) = text("key_env") else { return Ok(None) };
    match std::env::var_os(&name) {
        Some(value) => Ok(Some(Zeroizing::new(value.into_encoded_bytes()))),
        None => Err(format!("the environment has no variable `{name}`")),
    }
}

/// Reads a key file, at most one byte above the limit, into memory that is zeroed after use.
fn read_key(path: &Path, others: ForbiddenAccess) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let file = private::open(path, others)?;
    // Reserve all of it now: the old copies of a growing buffer would not be overwritten.
    let mut key = Zeroizing::new(Vec::with_capacity(KEY_BYTES_MAX + 1));
    file.take(KEY_BYTES_MAX as u64 + 1).read_to_end(&mut key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{OpenOptions, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    use weft_api::AtFault;
    use weft_control::check::{Accepted, at_fault};
    use weft_control::compile::Compiler;
    use weft_core::hash::HashKey;
    use weft_ir::interp::Interp;
    use weft_lang::diagnostic::{Diagnostic, RenderOptions, render_all};

    fn checked(function: &str, call: &str) -> Checked {
        let text = format!(
            "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
{function}
CREATE ELEMENT e ON rpc AS
  ON REQUEST SELECT * FROM input WHERE {call} ELSE ABORT INVALID_ARGUMENT 'no';
END;
CREATE CHAIN shop ON front -> cart AS e; END;
"
        );
        check_files("a.weft", &mut Files::of_text(&text))
    }

    /// The refusal of a program that is accepted but does not compile.
    fn refused(accepted: Option<Accepted>) -> Vec<Diagnostic> {
        let Accepted { network, lowered } = accepted.expect("it is accepted");
        let compiler = Compiler::new(Box::new(Interp), Box::new(Machine), 1, HashKey::from_seed(1));
        compiler.compile(&network, lowered, &[]).err().expect("it does not compile")
    }

    fn shown(checked: &Checked) -> String {
        render_all(&checked.diagnostics, &checked.sources, RenderOptions::default())
    }

    const SEAL: &str = "CREATE FUNCTION seal (TEXT) RETURNS BYTES AS NATIVE 'aes_256_gcm_seal' WITH";

    /// A machine without the key must be able to check the network, but not to run it.
    #[test]
    fn missing_key_warns_check_fails_run() {
        let option = "(key_env = 'WEFT_TEST_HAS_NO_SUCH_KEY');";
        let checked = checked(&format!("{SEAL} {option}"), "length(seal(method)) > 0");
        let rendered = shown(&checked);
        assert!(rendered.contains("warning[W0504]: `seal` could not run on this machine"), "{rendered}");
        let refused = refused(checked.accepted);
        assert_eq!(refused[0].code.0, "W0504");
        assert!(matches!(at_fault(&refused), AtFault::Environment));
    }

    /// A key in a diagnostic would end up in logs.
    #[test]
    fn wrong_size_key_is_not_printed() {
        let path = std::env::temp_dir().join(format!("weft-short-key-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.as_mut().expect("the folder can be written");
        file.write_all(b"too short to be one").expect("the file takes it");
        let option = format!("(key_file = '{}');", path.display());
        let rendered = shown(&checked(&format!("{SEAL} {option}"), "length(seal(method)) > 0"));
        std::fs::remove_file(&path).expect("it was written");
        assert!(rendered.contains("W0504") && rendered.contains("it needs 32 bytes"), "{rendered}");
        assert!(!rendered.contains("too short to be one"), "{rendered}");
    }

    #[test]
    fn readable_key_file_is_refused() {
        // Every user of the machine would know the key of the network; a public key is for all to know.
        let path = std::env::temp_dir().join(format!("weft-shared-key-{}", std::process::id()));
        let rendered = |mode, text: &str, function: &str, call: &str| {
            std::fs::write(&path, text).expect("the folder can be written");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("the file is ours");
            let rendered = shown(&checked(&function.replace("KEY", &path.display().to_string()), call));
            std::fs::remove_file(&path).expect("it was written");
            rendered
        };
        let seal = |mode| {
            rendered(
                mode,
                &"0f".repeat(32),
                &format!("{SEAL} (key_file = 'KEY');"),
                "length(seal(method)) > 0",
            )
        };
        assert_eq!(seal(0o600), "");
        for mode in [0o640, 0o604, 0o644] {
            let rendered = seal(mode);
            assert!(
                rendered.contains("W0504") && rendered.contains(&format!("mode {mode:04o}")),
                "{rendered}"
            );
            assert!(rendered.contains(&format!("chmod go= {}", path.display())), "{rendered}");
        }
        let public = include_str!("../../../tests/keys/rs256.pem");
        let verify = "CREATE FUNCTION token (TEXT) RETURNS TEXT? AS NATIVE 'jwt_verify'
            WITH (algorithm = 'RS256', key_file = 'KEY');";
        let verify = |mode| rendered(mode, public, verify, "token(method) IS NOT NULL");
        assert_eq!(verify(0o644), "");
        assert!(verify(0o664).contains("lets other users change it"));
    }

    /// A pattern of a few characters can compile to a machine of megabytes.
    #[test]
    fn oversized_pattern_is_refused() {
        let checked = checked("", r"regex_match(method, '\w{500}\w{500}')");
        assert_eq!(refused(checked.accepted)[0].code.0, "W0505");
    }

    /// The system would kill a node in a container for a program that the node had accepted.
    #[test]
    fn least_cgroup_limit_wins() {
        let root = std::env::temp_dir().join(format!("weft-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("it is made");
            std::fs::write(path, text).expect("it is written");
        };
        write("memory.max", "max\n");
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "max\n");
        write("a/b/c/memory.max", "2000\n");
        assert_eq!(least("0::/a/b/c\n", &root), Some(1000));
        assert_eq!(least("0::/\n", &root), None);
        // Version 1.
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/x/memory.limit_in_bytes", "3000\n");
        let old = "5:cpu,cpuacct:/y\n4:memory:/x/gone\n";
        assert_eq!(least(old, &root), Some(3000));
        assert_eq!(least(&format!("{old}0::/a\n"), &root), Some(1000));
        std::fs::remove_dir_all(root).expect("it is removed");
    }
}
