//! The house rules that a compiler does not check.
//!
//! A rule is one function from text to [`Finding`]s, with a test that it holds and one that it can fail.

mod docs;
pub(crate) mod glossary;
mod graph;
pub(crate) mod prose;
pub(crate) mod rust;
mod sizes;
mod sources;
mod status;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::Workspace;

/// A breach of a rule: where, and what would mend it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    text: String,
}

impl Finding {
    /// A breach at a line, counted from 1; line 0 means the whole file.
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// A text file of the workspace, with its path from the root.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Folders without own files.
const SKIPPED_FOLDERS: &[&str] = &["target", "node_modules", "corpus", "artifacts", "__pycache__"];

/// Checks every rule and prints the findings; true if there are none.
pub(crate) fn run(workspace: &Workspace) -> Result<bool, String> {
    let files = read_all(&workspace.root)?;
    let library = crate::book::library(&workspace.root)?;
    let names = sources::library_names(library.iter().map(|(_, text)| text.as_str()));
    let mut findings = check(workspace, &files, &names);
    findings.extend(docs::made_pages(&files, &crate::book::pages(&workspace.root)?));
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("tidy: {} files follow the house rules", files.len()),
        n => println!("tidy: {n} findings"),
    }
    Ok(findings.is_empty())
}

/// Checks every rule on the given files; the findings come in order of path and line. `names` are those of the
/// library's elements.
fn check(workspace: &Workspace, files: &[File], names: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = graph::dependencies(&workspace.packages);
    findings.extend(sources::dead_files(workspace, files));
    let sources = sources(files);
    for source in &sources {
        findings.extend(sources::header(source));
        findings.extend(sources::line_length(source));
        findings.extend(sources::unsafe_code(source));
        findings.extend(sources::leftovers(source));
        findings.extend(sources::named_elements(source, names));
        findings.extend(glossary::old_names(source));
    }
    findings.extend(prose::above_share(&sources));
    findings.extend(sizes::documents(files));
    findings.extend(status::check(files, &sources, crate::COMMANDS));
    findings.extend(docs::decisions(files));
    let makefile = files.iter().find(|file| file.path == "Makefile").map_or("", |file| &file.text);
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        findings.extend(docs::links(file, |target| workspace.root.join(target).exists()));
        findings.extend(docs::fences(file));
        findings.extend(docs::commands(file, makefile, crate::COMMANDS));
    }
    findings.sort();
    findings
}

/// The Rust files among `files`, taken apart.
pub(crate) fn sources(files: &[File]) -> Vec<rust::Source<'_>> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.map(|file| rust::Source::new(&file.path, &file.text)).collect()
}

/// The programs that the docs show in full, for `weft check`: a name and the text of each.
pub(crate) fn doc_programs(root: &Path) -> Result<Vec<(String, String)>, String> {
    let files = read_all(root)?;
    Ok(files.iter().filter(|file| file.path.ends_with(".md")).flat_map(docs::programs).collect())
}

/// Reads every text file under `root`, in order of path; files that are not UTF-8 are left out.
pub(crate) fn read_all(root: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let describe = |error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(describe)? {
            let entry = entry.map_err(describe)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(describe)?);
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() && !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                folders.push(path);
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(&path)
            {
                files.push(File { path: relative(root, &path), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The path from `root`, with `/` between folders.
fn relative(root: &Path, path: &Path) -> String {
    let below: PathBuf = path.strip_prefix(root).unwrap_or(path).to_owned();
    below.to_string_lossy().replace('\\', "/")
}
