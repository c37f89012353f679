//! The token of the admin endpoint. A user who can read its file may change the network.

use crate::fault::Fault;
use crate::private::{self, ForbiddenAccess};
use rustix::process::geteuid;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes of randomness in a token.
const TOKEN_BYTES: usize = 32;
/// The largest token file, in bytes.
const TOKEN_TEXT_BYTES_MAX: u64 = 4 << 10;

/// A token file that exists as long as this value.
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
        private::make_folder(path.parent().expect("the path has a folder")).map_err(cannot)?;
        let mut bytes = [0; TOKEN_BYTES];
        fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes)).map_err(cannot)?;
        let token: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        // Another node may have left a file there. Replace it whole; never write into it.
        let _ = fs::remove_file(&path);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(cannot)?;
        file.write_all(token.as_bytes()).map_err(cannot)?;
        Ok(Self { token, path })
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // Another node may have replaced the file meanwhile.
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.token) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The token of a running node: from a file that the caller names, or from the default path of `weft run` for this
/// user.
///
/// # Errors
/// There is no token, or other users could have written the file: its author would receive the program.
pub(crate) fn read(admin: SocketAddr, file: Option<&Path>) -> Result<String, Fault> {
    let default = default_path(admin);
    let path = file.unwrap_or(&default);
    let read = || {
        let folder = path.parent().filter(|_| file.is_none());
        if let Some(Err(error)) = folder.map(private::check_folder)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut token = String::new();
        let file = private::open(path, ForbiddenAccess::ReadOrWrite)?;
        file.take(TOKEN_TEXT_BYTES_MAX).read_to_string(&mut token)?;
        Ok(token.trim().to_owned())
    };
    read().map_err(|error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Fault::environment(format!(
            "no node of this user has its admin endpoint at {admin}: cannot read `{}`: {error}",
            path.display()
        ))
        .with_help("start one with `weft run FILE`, or say where it is with --admin and --token-file"),
        _ => Fault::environment(format!("the admin token `{}` cannot be read: {error}", path.display()))
            .with_help(
                "name a token that only its owner may read with --token-file, or start the node and this \
                 command with an XDG_RUNTIME_DIR of this user",
            ),
    })
}

/// The default path of the token file for an admin address in this network namespace.
fn default_path(admin: SocketAddr) -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
        || std::env::temp_dir().join(format!("weft-{}", geteuid().as_raw())),
        |runtime| PathBuf::from(runtime).join("weft"),
    );
    // Each network namespace has its own loopback, so nodes in two namespaces may have the same address.
    let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino());
    folder.join(format!("{}.{namespace}.token", admin.port()))
}
