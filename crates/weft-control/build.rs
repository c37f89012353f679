//! Embeds the standard library in the program.
//!
//! The library is every `.weft` file in its folder. This script knows no name of a file or an element.

#![expect(clippy::disallowed_methods, reason = "a build script reads the library's folder")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

#[path = "library_folder.rs"]
mod library_folder;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed={}", library_folder::VARIABLE);
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let folder = library_folder::library_folder(&root);
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    list(&folder, &mut files).map_err(|error| {
        let what = format!("the library's folder {} cannot be read: {error}", folder.display());
        io::Error::new(error.kind(), what)
    })?;
    files.sort();
    let mut code = String::from("static FILES: &[(&str, &str)] = &[\n");
    for file in &files {
        let inside = file.strip_prefix(&folder).expect("it was listed there");
        let full = fs::canonicalize(file)?;
        writeln!(code, "    ({:?}, include_str!({full:?})),", Path::new("library").join(inside))
            .expect("a string takes all text");
    }
    code.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("library.rs"), code)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            println!("cargo::rerun-if-changed={}", path.display());
            list(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "weft") {
            files.push(path);
        }
    }
    Ok(())
}
