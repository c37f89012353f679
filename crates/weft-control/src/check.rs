//! Checks a program: the front end, then what needs the whole program or the machine.

use crate::files::Files;
use crate::host::Host;
use crate::memory::MemoryLimit;
use crate::{metrics, natives, ports};
use weft_api::AtFault;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::Network;
use weft_lang::source::SourceMap;
use weft_opt::judge::{Lowered, judge};

/// A checked program, or its errors.
pub struct Checked {
    /// None if there was an error.
    pub accepted: Option<Accepted>,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts that the diagnostics refer to.
    pub sources: SourceMap,
    /// Whose fault it is if the program is not accepted.
    pub at_fault: AtFault,
}

/// A program without errors.
pub struct Accepted {
    /// The program.
    pub network: Network,
    /// Its lowered programs.
    pub lowered: Lowered,
}

/// The number of workers in a check without a node. With more than one, handlers also take locks, and a checked
/// program may run on several.
pub const WORKERS_JUDGED: usize = 2;

impl Checked {
    /// A check that failed before it had texts, for a reason of the machine.
    pub fn failed(diagnostic: Diagnostic) -> Self {
        let (diagnostics, sources) = (vec![diagnostic], SourceMap::new());
        Self { accepted: None, diagnostics, sources, at_fault: AtFault::Environment }
    }

    /// The program, if there was no error.
    pub fn network(&self) -> Option<&Network> {
        self.accepted.as_ref().map(|accepted| &accepted.network)
    }

    /// Refuses the program if it may use more memory than `limit`, on one worker.
    pub fn with_limit(mut self, limit: &MemoryLimit) -> Self {
        if let Some(Accepted { network, lowered }) = &self.accepted
            && let Err(refused) = limit.keep(network, lowered, 1)
        {
            self.accepted = None;
            self.diagnostics.extend(refused);
        }
        self
    }
}

/// Checks the program that starts with the file `root`, for a node that runs it with `workers` workers.
pub fn check(root: &str, files: &mut Files, workers: impl Fn(&Network) -> usize, host: &dyn Host) -> Checked {
    let (network, mut diagnostics, sources) = weft_lang::check(root, files);
    let accepted = network.and_then(|network| {
        let (lowered, findings) = judge_all(&network, &sources, workers(&network), host);
        diagnostics.extend(findings);
        lowered.map(|lowered| Accepted { network, lowered })
    });
    Checked { accepted, diagnostics, sources, at_fault: files.at_fault() }
}

/// Checks a program that the front end accepts. Returns its lowered programs unless there is an error, and all errors
/// and warnings.
pub fn judge_all(
    network: &Network,
    sources: &SourceMap,
    workers: usize,
    host: &dyn Host,
) -> (Option<Lowered>, Vec<Diagnostic>) {
    let mut diagnostics = natives::warnings(host, network);
    diagnostics.extend(metrics::check(network));
    let lowered = judge(network, sources, workers);
    diagnostics.extend(ports::check(network));
    let lowered = lowered.map_err(|refused| diagnostics.extend(refused)).ok();
    (lowered.filter(|_| !diagnostics.iter().any(Diagnostic::is_error)), diagnostics)
}

/// The cause if a checked program does not compile: a listener's name without an address is the machine's fault.
pub fn at_fault(diagnostics: &[Diagnostic]) -> AtFault {
    let elsewhere = [code::ADDRESS_UNRESOLVED, code::KEY_UNUSABLE, code::INTERNAL, code::OVER_MEMORY];
    let is_elsewhere = |d: &Diagnostic| elsewhere.contains(&d.code);
    if diagnostics.iter().all(is_elsewhere) { AtFault::Environment } else { AtFault::Program }
}
