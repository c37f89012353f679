//! The text of the standard library's files, as of the build of this program. Any file can `IMPORT 'library/...'`.

include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// The paths of all library files, as an `IMPORT` names them.
pub fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The text of a library file by its path, which begins with `library/`.
pub fn text(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}
