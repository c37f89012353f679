//! Queue programs at the head of simulated links.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::commands::render_options;
use crate::compile::check_files;
use crate::fault::Fault;
use crate::source::{Files, require};
use weft_api::Bundle;
use weft_engine::queue::QueueProgram;
use weft_jit::{CompiledQueue, Jit};
use weft_lang::diagnostic::render_all;
use weft_sim::net::{Discipline, Programmed};

/// The program that the experiment has of itself, and the name under which it is told of.
const BY_OBJECTIVE: (&str, &str) = ("by_objective.weft", include_str!("by_objective.weft"));

/// A queue program, compiled.
pub(super) struct Program {
    /// Its text, without the library.
    bundle: Bundle,
    program: Arc<QueueProgram>,
    code: Arc<CompiledQueue>,
}

impl Program {
    /// The one that gives each application what it asks for.
    pub(super) fn by_objective() -> Result<Self, Fault> {
        let (name, text) = BY_OBJECTIVE;
        let open = Rc::new(BTreeMap::from([(name.to_owned(), text.to_owned())]));
        Self::checked(name, Files::with_open(&open))
    }

    /// The last queue that a file creates.
    pub(super) fn of_file(path: &str) -> Result<Self, Fault> {
        require(path)?;
        Self::checked(path, Files::on_disk())
    }

    /// What the user calls it.
    pub(super) fn name(&self) -> &str {
        &self.program.name
    }

    /// An empty queue that runs it.
    pub(super) fn discipline(&self, seed: u64) -> Box<dyn Discipline> {
        Box::new(Programmed::new(self.program.clone(), self.code.clone(), seed))
    }

    /// Its text, without the library.
    pub(super) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    fn checked(path: &str, mut files: Files) -> Result<Self, Fault> {
        let checked = check_files(path, &mut files);
        eprint!("{}", render_all(&checked.diagnostics, &checked.sources, render_options()));
        let network = checked.network.ok_or_else(|| Fault::told(checked.at_fault))?;
        let last = network.queues.last();
        let queue = last.ok_or_else(|| Fault::Input(format!("{path}: it creates no queue")))?;
        if let Some(header) = queue.headers().first() {
            let name = (&queue.name, &header.name);
            let text = format!(
                "{path}: queue `{}` asks for `{}`, and simulated packets have no headers",
                name.0, name.1
            );
            return Err(Fault::Input(text).with_help("let it look at `p.flow` or `p.class` instead"));
        }
        let program = Arc::new(weft_opt::lower::queue(queue));
        let jit = Jit::new()
            .map_err(|why| Fault::environment(format!("no machine code on this machine: {why}")))?;
        let code = jit.compile_queue(&program).map_err(|why| Fault::Input(format!("{path}: {why}")))?;
        Ok(Self { bundle: files.into_bundle(path), program, code: Arc::new(code) })
    }
}
