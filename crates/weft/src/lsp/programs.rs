//! The open texts of a client, and the programs that they belong to.

use super::position::{name_of, uri_of};
use crate::job;
use crate::machine::Machine;
use crate::source;
use lsp_types::{Position, TextDocumentContentChangeEvent, Uri};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use weft_control::check::WORKERS_JUDGED;
use weft_control::check::judge_all;
use weft_control::library;
use weft_lang::check::analyse;
use weft_lang::diagnostic::Diagnostic;
use weft_lang::editor::Program;
use weft_lang::source::{FileId, SourceMap};

/// A text that the client has open.
#[derive(Debug)]
pub(super) struct Document {
    /// The client's URI.
    pub(super) uri: Uri,
    pub(super) version: i32,
}

/// A program: an open text and all of its imports.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) program: Program,
    /// The diagnostics of a check.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// It can be lowered.
    pub(super) is_good: bool,
    /// Names of files that the program requested, whether or not they exist.
    files: BTreeSet<String>,
}

/// The open texts by the names of their files, and their programs.
#[derive(Debug, Default)]
pub(super) struct Programs {
    documents: BTreeMap<String, Document>,
    texts: Arc<BTreeMap<String, String>>,
    roots: BTreeMap<String, Root>,
}

impl Programs {
    /// Opens a text, or replaces it.
    pub(super) fn open(&mut self, uri: Uri, version: i32, text: String) {
        let name = name_of(&uri);
        self.set(&name, text);
        self.documents.insert(name, Document { uri, version });
    }

    /// Closes a text: the file on the disk counts again.
    pub(super) fn close(&mut self, uri: &Uri) {
        let name = name_of(uri);
        self.documents.remove(&name);
        Arc::make_mut(&mut self.texts).remove(&name);
        self.forget(&name);
        self.roots.remove(&name);
    }

    /// Changes an open text; ignores a text that is not open.
    pub(super) fn change(&mut self, uri: &Uri, version: i32, changes: Vec<TextDocumentContentChangeEvent>) {
        let name = name_of(uri);
        let Some(mut text) = self.texts.get(&name).cloned() else { return };
        for change in changes {
            match change.range {
                None => text = change.text,
                Some(range) => {
                    let (start, end) = (offset_in(&text, range.start), offset_in(&text, range.end));
                    text.replace_range(start..end.max(start), &change.text);
                }
            }
        }
        self.set(&name, text);
        if let Some(document) = self.documents.get_mut(&name) {
            document.version = version;
        }
    }

    /// Reads everything again after a change on the disk.
    pub(super) fn forget_all(&mut self) {
        self.roots.clear();
    }

    pub(super) fn document(&self, name: &str) -> Option<&Document> {
        self.documents.get(name)
    }

    /// An open text.
    #[cfg(test)]
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// Checks the programs of changed texts. A text that another open text imports is no program of its own, since it
    /// may need the other's declarations.
    pub(super) fn refresh(&mut self) {
        let names: Vec<String> = self.documents.keys().cloned().collect();
        for name in &names {
            if !self.roots.contains_key(name) {
                let root = self.analysed(name);
                self.roots.insert(name.clone(), root);
            }
        }
    }

    /// The programs whose root no other open text imports. Of texts that import each other, all count.
    pub(super) fn whole(&self) -> impl Iterator<Item = (&str, &Root)> {
        let imports = |by: &str, name: &str| {
            by != name && self.roots.get(by).is_some_and(|root| root.files.contains(name))
        };
        self.roots.iter().filter_map(move |(name, root)| {
            let is_part = self.roots.keys().any(|other| imports(other, name) && !imports(name, other));
            (!is_part).then_some((name.as_str(), root))
        })
    }

    /// The programs that include a file, with its id in each.
    pub(super) fn with(&self, uri: &Uri) -> Vec<(&Root, FileId)> {
        let name = name_of(uri);
        let whole = self.whole().map(|(_, root)| root);
        let found = whole.filter_map(|root| Some((root, file_of(&root.program.analysis.sources, &name)?)));
        found.collect()
    }

    /// The URI of a file of a program: the client's if it is open, otherwise that of its path.
    pub(super) fn uri(&self, name: &str) -> Option<Uri> {
        if let Some(document) = self.documents.get(name) {
            return Some(document.uri.clone());
        }
        if std::path::Path::new(name).exists() {
            return uri_of(name);
        }
        uri_of(&library_copy(name)?.display().to_string())
    }

    fn set(&mut self, name: &str, text: String) {
        Arc::make_mut(&mut self.texts).insert(name.to_owned(), text);
        self.forget(name);
    }

    /// Drops the programs that include a file.
    fn forget(&mut self, name: &str) {
        self.roots.retain(|_, root| !root.files.contains(name));
    }

    /// Analyses a program, as a part of a [`job`]. If Weft panics, the result is empty, with a diagnostic.
    fn analysed(&self, name: &str) -> Root {
        job::part(|| self.analysed_here(name)).unwrap_or_else(|broken| {
            let nothing = Arc::new(BTreeMap::from([(name.to_owned(), String::new())]));
            let analysis = analyse(name, &mut source::with_open(&nothing));
            let (diagnostics, files) = (vec![broken.diagnostic()], [name.to_owned()].into());
            Root { program: Program::new(analysis), diagnostics, is_good: false, files }
        })
    }

    /// Analyses a program on the current thread, with the client's open texts in place of files.
    fn analysed_here(&self, name: &str) -> Root {
        let mut analysis = analyse(name, &mut source::with_open(&self.texts));
        let mut diagnostics = std::mem::take(&mut analysis.diagnostics);
        let mut is_good = !diagnostics.iter().any(Diagnostic::is_error);
        if is_good {
            let (lowered, findings) =
                judge_all(&analysis.network, &analysis.sources, WORKERS_JUDGED, &Machine);
            is_good = lowered.is_some();
            diagnostics.extend(findings);
        }
        let mut files: BTreeSet<String> =
            analysis.sources.files().map(|(_, file)| file.name().to_owned()).collect();
        files.insert(name.to_owned());
        files.extend(analysis.program.imports.iter().map(|(_, name)| name.clone()));
        Root { program: Program::new(analysis), diagnostics, is_good, files }
    }
}

/// The id of a file by its name.
pub(super) fn file_of(sources: &SourceMap, name: &str) -> Option<FileId> {
    sources.files().find(|(_, file)| file.name() == name).map(|(id, _)| id)
}

/// The byte offset of a position, in a text without an index of its lines.
fn offset_in(text: &str, position: Position) -> usize {
    let mut sources = SourceMap::new();
    match sources.add("", text) {
        Ok(id) => super::position::offset_of(sources.file(id), position) as usize,
        // The file is too large, which is reported elsewhere; the offset of the change does not matter.
        Err(_) => text.len(),
    }
}

/// Writes a copy of a built-in library file to the user's cache, for the editor to open.
fn library_copy(name: &str) -> Option<PathBuf> {
    let inside = name.rfind("library/").map(|at| &name[at..])?;
    let text = library::text(inside)?;
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
    let copy = cache.join("weft").join(env!("CARGO_PKG_VERSION")).join(inside);
    if std::fs::read_to_string(&copy).ok().as_deref() != Some(text) {
        std::fs::create_dir_all(copy.parent()?).ok()?;
        std::fs::write(&copy, text).ok()?;
    }
    Some(copy)
}
