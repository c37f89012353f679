//! Reads regular files up to a limit.
//!
//! Others are refused: a FIFO may never begin or end, and reading a device may have side effects. Symbolic links are
//! followed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a regular file for reading.
///
/// # Errors
/// It does not exist, may not be read, or is of another kind ([`io::ErrorKind::InvalidInput`], with the kind).
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Checked before opening, because opening some devices has side effects; and again afterwards, because the file may
    // have been replaced.
    let refuse = |kind: std::fs::FileType| match kind.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {}, and no file", kind_name(kind)),
        )),
    };
    refuse(std::fs::metadata(path)?.file_type())?;
    // A FIFO that has replaced the file would block otherwise.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    refuse(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// As [`open_regular`]; or it is longer ([`io::ErrorKind::FileTooLarge`]), after reading one byte more.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let size = file.metadata()?.len();
    if size > bytes_max {
        return Err(too_large(bytes_max));
    }
    read_at_most(file, bytes_max)
}

/// Reads everything from a reader, at most `bytes_max` bytes.
///
/// # Errors
/// It cannot be read, or has more ([`io::ErrorKind::FileTooLarge`]), after reading one byte more.
pub fn read_at_most(reader: impl io::Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The file may have grown, or report no size: files of the kernel report 0.
    reader.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(too_large(bytes_max)) } else { Ok(bytes) }
}

/// Converts the result to text.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is not UTF-8, or the error in `bytes`.
pub fn text(bytes: io::Result<Vec<u8>>) -> io::Result<String> {
    String::from_utf8(bytes?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns the error of a file with more than `bytes_max` bytes.
fn too_large(bytes_max: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("it has more than {bytes_max} bytes, which is the limit"),
    )
}

/// Names a kind of file that is not a regular one, for messages.
fn kind_name(kind: std::fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("weft-file-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder of temporary files may be written");
        folder
    }

    /// A FIFO or a device named by a program would block a node for ever, or fill its memory.
    #[test]
    fn only_regular_files_are_read() {
        let folder = folder("kinds");
        let fifo = folder.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is installed");
        assert!(made.success());
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::fs::write(&file, "text").expect("the file can be written");
        symlink(&file, &link).expect("the link can be made");
        let why = |path: &Path| open_regular(path).map(drop).map_err(|error| error.to_string());
        assert_eq!(why(&fifo), Err("it is a FIFO, and no file".to_owned()));
        assert_eq!(why(Path::new("/dev/zero")), Err("it is a device, and no file".to_owned()));
        assert_eq!(why(&folder), Err("it is a folder, and no file".to_owned()));
        assert_eq!(read_regular(&link, 4).ok(), Some(b"text".to_vec()));
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    /// A file that grows beyond its reported size would fill memory.
    #[test]
    fn files_are_read_to_their_limit() {
        assert_eq!(read_at_most(&b"text"[..], 4).ok(), Some(b"text".to_vec()));
        let more = read_at_most(io::repeat(0), 1 << 16).map_err(|error| error.kind());
        assert_eq!(more.err(), Some(io::ErrorKind::FileTooLarge));
        // This file reports size 0.
        assert_eq!(
            read_regular(Path::new("/proc/self/status"), 8).map_err(|e| e.kind()).err(),
            Some(io::ErrorKind::FileTooLarge)
        );
        assert_eq!(text(Ok(vec![0xff])).map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
    }
}
