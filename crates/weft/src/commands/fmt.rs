//! `weft fmt`: formats programs.

use crate::cli::FmtArgs;
use crate::fault::Fault;
use crate::source::{FILE_BYTES_MAX, read_text};
use crate::stderr;
use crate::stdout;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;
use weft_lang::source::SourceMap;
use weft_lang::{format, parser};

/// The name of standard input.
const STDIN: &str = "-";

/// Runs `weft fmt`: rewrites files, prints them, or only lists files that would change.
pub(crate) fn run(args: &FmtArgs) -> Result<(), Fault> {
    let mut is_faulty = false;
    let mut would_change = 0;
    for path in &files(&args.files)? {
        let is_stdin = path == STDIN;
        let text = read_text(path, FILE_BYTES_MAX)?;
        let Some(formatted) = formatted(path, &text) else {
            is_faulty = true;
            continue;
        };
        if args.stdout || (is_stdin && !args.check) {
            // The program means the same before and after.
            stdout::print_bytes(formatted.as_bytes())?;
        } else if formatted != text {
            would_change += 1;
            if !args.check {
                replace(Path::new(path), &formatted)
                    .map_err(|error| Fault::environment(format!("cannot write `{path}`: {error}")))?;
            }
            stdout::print(&format!("{path}\n"))?;
        }
    }
    if is_faulty || (args.check && would_change > 0) { Err(Fault::Reported) } else { Ok(()) }
}

/// The files of the arguments: for a folder, all programs in it and below, in order.
fn files(paths: &[String]) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    for path in paths {
        if path != STDIN && Path::new(path).is_dir() {
            let fault = |error: io::Error| Fault::environment(format!("cannot read `{path}`: {error}"));
            programs(Path::new(path), &mut found).map_err(fault)?;
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

/// Adds the `.weft` files of a folder and its subfolders, sorted. Does not follow links to folders.
fn programs(folder: &Path, found: &mut Vec<String>) -> io::Result<()> {
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let is_link = path.is_symlink();
        if path.is_dir() && !is_link {
            programs(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "weft") {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}

/// The formatted text; None if the text has errors, which are then printed.
fn formatted(path: &str, text: &str) -> Option<String> {
    let mut sources = SourceMap::new();
    let file = match sources.add(path.to_owned(), text.to_owned()) {
        Ok(file) => file,
        Err(diagnostic) => {
            stderr::diagnostics(&[*diagnostic], &sources);
            return None;
        }
    };
    let done = format::format(&sources, file);
    if done.is_none() {
        let (_, diagnostics) = parser::parse(&sources, file);
        stderr::diagnostics(&diagnostics, &sources);
    }
    done
}

/// Replaces the text of a file: all of it or, after an error, nothing. Keeps the permissions, and follows links.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let found = fs::metadata(&path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
        // Only root may change the owner; other users format their own files, or become the owner.
        let _ = fchown(&file, Some(found.uid()), Some(found.gid()));
        file.set_permissions(found.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    };
    let done = write();
    if done.is_err() {
        let _ = fs::remove_file(&beside);
    }
    done
}
