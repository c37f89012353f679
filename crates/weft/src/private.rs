//! Files and folders that belong to this user alone: tokens and keys.

use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use weft_io::file::open_regular;

/// Access that users other than the owner must not have to a file: mode bits of the group and of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForbiddenAccess {
    /// For secrets.
    ReadOrWrite = 0o077,
    /// For files that others may read but not replace.
    Write = 0o022,
}

/// Makes a folder, with its parents, that only this user may access, and checks it as [`check_folder`] does.
///
/// # Errors
/// An error of the system, or the folder belongs to another user.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => check_folder(folder),
    }
}

/// Checks that this user owns a folder, and that no other user may change its contents. Another user's folder, or a
/// link to another folder, would give away the files that we write there, or supply files of its owner's choice.
///
/// # Errors
/// An error of the system, or what is wrong with the folder.
pub(crate) fn check_folder(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let why = if !found.is_dir() {
        "is no folder".to_owned()
    } else if found.uid() != geteuid().as_raw() {
        format!("belongs to another user (uid {})", found.uid())
    } else if found.mode() & ForbiddenAccess::Write as u32 != 0 {
        format!("may be written to by others (mode {:04o})", found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!("`{}` {why}", folder.display())))
}

/// Opens a regular file if its mode excludes other users.
///
/// # Errors
/// An error of the system, or the mode allows too much.
pub(crate) fn open(path: &Path, others: ForbiddenAccess) -> io::Result<File> {
    let file = open_regular(path)?;
    let mode = file.metadata()?.mode() & 0o7777;
    if mode & others as u32 == 0 {
        return Ok(file);
    }
    let (what, change) = match others {
        ForbiddenAccess::ReadOrWrite => ("read or change", "go="),
        ForbiddenAccess::Write => ("change", "go-w"),
    };
    Err(io::Error::other(format!(
        "its mode {mode:04o} lets other users {what} it: `chmod {change} {}`",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn foreign_folder_is_refused() {
        // Weft would read a token from, or write it into, a folder that another user prepared.
        let at = std::env::temp_dir().join(format!("weft-private-{}", std::process::id()));
        let folder = at.join("a/b");
        make_folder(&folder).expect("the folder can be made");
        assert_eq!(fs::metadata(&folder).expect("it is there").mode() & 0o777, 0o700);
        assert!(make_folder(&folder).is_ok() && check_folder(&folder).is_ok());
        let refused = |path: &Path| make_folder(path).expect_err("it is refused").to_string();
        let chmod = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode));
        for mode in [0o720, 0o702, 0o1777] {
            chmod(mode).expect("the folder is ours");
            assert!(refused(&folder).contains("written to by others"), "{mode:o}");
        }
        chmod(0o755).expect("the folder is ours");
        assert!(check_folder(&folder).is_ok(), "others may see which nodes there are");
        symlink(&folder, at.join("link")).expect("the folder is ours");
        assert!(refused(&at.join("link")).contains("is no folder"));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(1), None).expect("root may");
            assert!(refused(&folder).contains("another user (uid 1)"));
        }
        fs::remove_dir_all(&at).expect("the folder is ours");
    }

    #[test]
    fn readable_secret_is_refused() {
        // Weft would use a key that every user of the machine knows.
        let path = std::env::temp_dir().join(format!("weft-private-file-{}", std::process::id()));
        fs::write(&path, "x").expect("the folder takes files");
        let is_open = |mode, others| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the file is ours");
            open(&path, others).map(drop).map_err(|error| error.to_string())
        };
        for mode in [0o600, 0o400] {
            assert_eq!(is_open(mode, ForbiddenAccess::ReadOrWrite), Ok(()));
        }
        for mode in [0o640, 0o604, 0o620, 0o602] {
            let why = is_open(mode, ForbiddenAccess::ReadOrWrite).expect_err("it is refused");
            assert!(why.contains(&format!("mode {mode:04o}")) && why.contains("chmod go="), "{why}");
        }
        assert_eq!(is_open(0o644, ForbiddenAccess::Write), Ok(()));
        assert!(is_open(0o664, ForbiddenAccess::Write).is_err());
        fs::remove_file(&path).expect("the file is ours");
    }
}
