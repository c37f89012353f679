//! The files of the repository that the tests read.

use std::path::{Path, PathBuf};

#[path = "../../../weft-control/library_folder.rs"]
mod library_folder;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every program of the library and of these folders, seen from the root.
pub(crate) fn programs(folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&library_folder::library_folder(&root()), &mut found);
    folders.iter().for_each(|folder| collect(&root().join(folder), &mut found));
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("it is a folder of the repository") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "weft") {
            found.push(path);
        }
    }
}
