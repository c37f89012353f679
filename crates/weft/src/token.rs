//! The token that the admin endpoint asks for: who can read the file may change the network.

use crate::fault::Fault;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes of randomness in a token.
const TOKEN_BYTES: usize = 32;

/// A token that is on the disk while this lives.
pub(crate) struct TokenFile {
    pub(crate) token: String,
    path: PathBuf,
}

impl TokenFile {
    /// Makes a new token for the node whose admin endpoint is at `admin`.
    pub(crate) fn create(admin: SocketAddr) -> Result<Self, Fault> {
        let path = default_path(admin);
        let cannot = |error: std::io::Error| {
            Fault::environment(format!("cannot write the admin token to `{}`: {error}", path.display()))
                .with_help("set XDG_RUNTIME_DIR to a folder that this user may write")
        };
        make_private_folder(path.parent().expect("the path has a folder")).map_err(cannot)?;
        let mut bytes = [0; TOKEN_BYTES];
        fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes)).map_err(cannot)?;
        let token: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        // A file that another node left may be there; it is replaced whole, never written into.
        let _ = fs::remove_file(&path);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(cannot)?;
        file.write_all(token.as_bytes()).map_err(cannot)?;
        Ok(Self { token, path })
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // Another node may have replaced it meanwhile.
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.token) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The token of a running node.
pub(crate) fn read(admin: SocketAddr, file: Option<&Path>) -> Result<String, Fault> {
    let path = file.map_or_else(|| default_path(admin), Path::to_owned);
    fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|error| {
        Fault::environment(format!(
            "no node of this user has its admin endpoint at {admin}: cannot read `{}`: {error}",
            path.display()
        ))
        .with_help("start one with `weft run FILE`, or say where it is with --admin and --token-file")
    })
}

fn default_path(admin: SocketAddr) -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
        || std::env::temp_dir().join(format!("weft-{}", user_id())),
        |runtime| PathBuf::from(runtime).join("weft"),
    );
    // Each network namespace has a loopback of its own, so that nodes in two of them may have one address.
    let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino());
    folder.join(format!("{}.{namespace}.token", admin.port()))
}

fn user_id() -> u32 {
    fs::metadata("/proc/self").map_or(0, |m| m.uid())
}

/// A folder that is this user's alone. One that somebody else prepared in a shared place is refused.
fn make_private_folder(folder: &Path) -> std::io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != user_id() || found.mode() & 0o022 != 0 {
        return Err(std::io::Error::other("the folder belongs to another user, or others may write to it"));
    }
    Ok(())
}
