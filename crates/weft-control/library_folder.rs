//! The location of the standard library. The build script, the tests and the project's own commands include this file,
//! so the location is defined once.
//!
//! In a program the library is always called `library/...`, whatever the folder's name: `IMPORT` names what is built
//! in, not a place on a disk.

use std::path::{Path, PathBuf};

/// Names another folder; a relative path starts at the root of the workspace.
pub(crate) const VARIABLE: &str = "WEFT_LIBRARY_DIR";
/// The folder, unless the variable names another.
const DEFAULT: &str = "library";

/// The folder, relative to the root of the workspace.
pub(crate) fn library_folder(root: &Path) -> PathBuf {
    root.join(std::env::var_os(VARIABLE).unwrap_or_else(|| DEFAULT.into()))
}
