//! Files of recordings: what the queues of links were asked, with the program that answered.
//!
//! A line of JSON begins a link and says all that is needed to ask its queue again; the lines behind it are those of
//! [`weft_engine::recording`].

use crate::commands::render_options;
use crate::compile::check_files;
use crate::fault::Fault;
use crate::source::Files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use weft_api::Bundle;
use weft_engine::queue::QueueProgram;
use weft_engine::recording::Recorder;
use weft_lang::diagnostic::render_all;
use weft_lang::hir;
use weft_lang::source::SourceMap;

/// The version of the format.
const VERSION: u32 = 1;
/// Bytes of a file that is read: both ways of an emulated link, as long as they may be.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// What stands in front of the calls of a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    weft_recording: u32,
    /// The version of the program that wrote it: its library answered.
    weft: String,
    /// The link.
    pub(super) link: String,
    /// Bits a second, if it has a rate of its own.
    pub(super) rate: Option<u64>,
    /// When the queue began, in nanoseconds of its clock.
    pub(super) begun_ns: u64,
    /// What chance in it follows from.
    pub(super) seed: u64,
    /// Something came later that is not here.
    pub(super) is_cut: bool,
    /// The program, without the library.
    root: String,
    files: BTreeMap<String, String>,
}

/// A recorded link.
pub(super) struct Recorded {
    pub(super) head: Head,
    /// Its calls.
    pub(super) text: String,
    /// The line of the file in front of them, counted from 1.
    pub(super) line: usize,
}

/// What a recorded link runs.
pub(super) struct Program {
    pub(super) queue: Arc<QueueProgram>,
    pub(super) levels: Vec<hir::QueueLevel>,
    pub(super) sources: SourceMap,
}

/// Writes a file of recordings.
pub(super) fn write(
    path: &Path,
    program: &Bundle,
    rates: &BTreeMap<String, Option<u64>>,
    recordings: &[(String, Recorder)],
) -> Result<(), Fault> {
    let Bundle { root, files } = program;
    let mut text = String::new();
    for (link, recorder) in recordings {
        let (begun_ns, seed) = recorder.begun();
        let head = Head {
            weft_recording: VERSION,
            weft: env!("CARGO_PKG_VERSION").to_owned(),
            link: link.clone(),
            rate: rates.get(link).copied().flatten(),
            begun_ns,
            seed,
            is_cut: recorder.is_cut(),
            root: root.clone(),
            files: files.clone(),
        };
        let head = serde_json::to_string(&head).expect("it is data");
        let _ = write!(text, "{head}\n{}", recorder.text());
    }
    fs::write(path, text).map_err(|error| Fault::environment(format!("{}: {error}", path.display())))
}

/// The links of a file.
///
/// # Errors
/// It cannot be read, or is no recording of this version.
pub(super) fn read(path: &Path) -> Result<Vec<Recorded>, Fault> {
    let told = |error: std::io::Error| Fault::environment(format!("{}: {error}", path.display()));
    if fs::metadata(path).map_err(told)?.len() > FILE_BYTES_MAX {
        return Err(Fault::Input(format!("{}: more than {FILE_BYTES_MAX} bytes", path.display())));
    }
    let bytes = fs::read(path).map_err(told)?;
    let mut links: Vec<Recorded> = Vec::new();
    for (nth, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
        let fault = |why: &str| Fault::Input(format!("{}: line {}: {why}", path.display(), nth + 1));
        if line.starts_with('{') {
            let head: Head =
                serde_json::from_str(line).map_err(|error| fault(&format!("it begins no link: {error}")))?;
            if head.weft_recording != VERSION {
                return Err(fault(&format!("version {} of recordings, not {VERSION}", head.weft_recording)));
            }
            links.push(Recorded { head, text: String::new(), line: nth + 1 });
        } else {
            let link = links.last_mut().ok_or_else(|| fault("it is no recording of a link"))?;
            link.text.push_str(line);
            link.text.push('\n');
        }
    }
    if links.is_empty() {
        return Err(Fault::Input(format!("{}: it has no link", path.display())));
    }
    Ok(links)
}

impl Recorded {
    /// Checks the program that it was recorded with.
    pub(super) fn program(&self) -> Result<Program, Fault> {
        let bundle = Bundle { root: self.head.root.clone(), files: self.head.files.clone() };
        let checked = check_files(&bundle.root, &mut Files::in_bundle(&bundle));
        let shown = render_all(&checked.diagnostics, &checked.sources, render_options());
        let Some(network) = checked.network else {
            eprint!("{shown}");
            return Err(Fault::told(checked.at_fault));
        };
        let link = network.links.into_iter().find(|link| link.name == self.head.link);
        let link = link.ok_or_else(|| {
            Fault::Input(format!("the program of the recording has no link `{}`", self.head.link))
        })?;
        if self.head.weft != env!("CARGO_PKG_VERSION") {
            eprintln!("recorded with weft {}, whose library may be another", self.head.weft);
        }
        let queue = Arc::new(weft_opt::lower::queue(&link.queue));
        Ok(Program { queue, levels: link.queue.levels, sources: checked.sources })
    }
}
