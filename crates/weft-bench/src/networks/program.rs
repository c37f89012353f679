//! Queue programs at the head of simulated links.

use std::sync::Arc;
use weft_control::check::Accepted;

use super::Console;
use crate::machine::Machine;
use weft_api::Bundle;
use weft_control::check::{WORKERS_JUDGED, check};
use weft_control::fault::Fault;
use weft_control::files::Files;
use weft_control::library;
use weft_control::missing_args::{self, MissingArgs};
use weft_engine::queue::{Queue, QueueProgram};
use weft_jit::{CompiledQueue, Jit};
use weft_lang::{hir, nearest};
use weft_sim::net::{Discipline, Programmed};

/// The experiment's own program, and its display name.
const BY_OBJECTIVE: (&str, &str) = ("by_objective.weft", include_str!("by_objective.weft"));
/// The library's folder of queues.
const LIBRARY: &str = "library/queues/";
/// The default queue.
const PLAIN: &str = "fifo";
/// The name in diagnostics of the program that gives a queue its arguments, and the name of its queue.
const WITH_ARGUMENTS: &str = "(weft sim run)";
const CHOSEN: &str = "chosen";

/// A queue program, compiled.
pub(super) struct Program {
    /// The user's name for it.
    label: String,
    /// Its text, without the library.
    bundle: Bundle,
    program: Arc<QueueProgram>,
    code: Arc<CompiledQueue>,
}

/// A checked file.
struct Source {
    path: String,
    bundle: Bundle,
    queues: Vec<hir::Queue>,
    /// Queues that need arguments.
    missing_args: Vec<MissingArgs>,
}

impl Program {
    /// The queue that gives each application what it needs.
    pub(super) fn by_objective(console: &dyn Console) -> Result<Self, Fault> {
        let (name, text) = BY_OBJECTIVE;
        Source::of_text(name, text.to_owned(), console)?.last()
    }

    /// The last queue of a file, from `mine.weft` or `mine.weft (target = '3 ms')`.
    pub(super) fn of_file(named: &str, console: &dyn Console) -> Result<Self, Fault> {
        let (path, arguments) = split(named);
        let source = Source::of_file(path, console)?;
        match arguments {
            "" => source.last(),
            arguments => {
                Self::of_source(source.last_name()?, source.last_name()?, arguments, &source, console)
            }
        }
    }

    /// The queues with these names, of the file, of the library, or of other files. Without names the last queue of the
    /// file; without a file the default queue.
    ///
    /// # Errors
    /// A file is wrong, a name has no queue, or the queue is not for simulated packets.
    pub(super) fn chosen(
        path: Option<&str>,
        names: &[String],
        console: &dyn Console,
    ) -> Result<Vec<Self>, Fault> {
        let file = path.map(|path| Source::of_file(path, console)).transpose()?;
        match (&file, names) {
            (Some(file), []) => Ok(vec![file.last()?]),
            (None, []) => Ok(vec![Self::named(None, PLAIN, console)?]),
            (file, names) => names.iter().map(|name| Self::named(file.as_ref(), name, console)).collect(),
        }
    }

    /// The user's name for it.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Its name in the program.
    pub(super) fn name(&self) -> &str {
        &self.program.name
    }

    /// An empty queue of this program, at the head of a link.
    pub(super) fn discipline(&self, seed: u64) -> Box<dyn Discipline> {
        Box::new(Programmed::new(self.program.clone(), self.code.clone(), seed))
    }

    /// An empty queue of this program.
    pub(super) fn queue(&self, seed: u64) -> Queue<Arc<CompiledQueue>> {
        Queue::new(self.program.clone(), self.code.clone(), 0, seed)
    }

    /// The names of the queues of the library.
    pub(super) fn of_library() -> Vec<String> {
        library_names().map(str::to_owned).collect()
    }

    /// Its text, without the library.
    pub(super) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The queue of `codel`, of `codel (target = '3 ms')`, or of `mine.weft`, whose last queue counts.
    fn named(file: Option<&Source>, label: &str, console: &dyn Console) -> Result<Self, Fault> {
        let (name, arguments) = split(label);
        if name.contains(['/', '.']) {
            let other = Source::of_file(name, console)?;
            return Self::of_source(label, other.last_name()?, arguments, &other, console);
        }
        if let Some(file) = file.filter(|file| file.has(name)) {
            return Self::of_source(label, name, arguments, file, console);
        }
        let import = format!("{LIBRARY}{name}.weft");
        if library::text(&import).is_none() {
            return Err(unknown(file, name));
        }
        let source = Source::checked(&import, console.files(None), console)?;
        Self::of_source(label, name, arguments, &source, console)
    }

    /// A queue of a source, with arguments if there are any.
    fn of_source(
        label: &str,
        name: &str,
        arguments: &str,
        source: &Source,
        console: &dyn Console,
    ) -> Result<Self, Fault> {
        if arguments.is_empty() {
            return Self::made(label, source.usable(name, label)?, source);
        }
        let import = source.path.replace('\'', "''");
        let text = format!("IMPORT '{import}';\nCREATE QUEUE {CHOSEN} AS {name} {arguments}; END;\n");
        let with_arguments = Source::of_text(WITH_ARGUMENTS, text, console)?;
        Self::made(label, with_arguments.usable(CHOSEN, CHOSEN)?, &with_arguments)
    }

    /// Compiles a queue for the simulator. Fails if it reads header fields, which simulated packets do not have.
    fn made(label: &str, queue: &hir::Queue, source: &Source) -> Result<Self, Fault> {
        if let Some(header) = queue.headers().first() {
            let text = format!(
                "{}: queue `{label}` asks for `{}`, and simulated packets have no headers",
                source.path, header.name
            );
            return Err(Fault::Input(text).with_help("let it look at `p.flow` or `p.class` instead"));
        }
        let program = Arc::new(weft_opt::lower::queue(queue));
        let jit = Jit::new()
            .map_err(|why| Fault::environment(format!("no machine code on this machine: {why}")))?;
        let code =
            jit.compile_queue(&program).map_err(|why| Fault::Input(format!("{}: {why}", source.path)))?;
        Ok(Self { label: label.to_owned(), bundle: source.bundle.clone(), program, code: Arc::new(code) })
    }
}

impl Source {
    fn of_file(path: &str, console: &dyn Console) -> Result<Self, Fault> {
        console.require(path)?;
        Self::checked(path, console.files(None), console)
    }

    fn of_text(name: &str, text: String, console: &dyn Console) -> Result<Self, Fault> {
        Self::checked(name, console.files(Some((name, text))), console)
    }

    /// Checks a program and keeps its queues, its files, and the queues whose arguments are missing.
    fn checked(path: &str, mut files: Files, console: &dyn Console) -> Result<Self, Fault> {
        let checked = check(path, &mut files, |_| WORKERS_JUDGED, &Machine);
        console.diagnostics(&checked);
        let Some(Accepted { network, .. }) = checked.accepted else {
            return Err(Fault::reported(checked.at_fault));
        };
        let (bundle, missing_args) = (files.into_bundle(path), missing_args::queues(&checked.sources));
        Ok(Self { path: path.to_owned(), bundle, queues: network.queues, missing_args })
    }

    /// The names of its queues; those that need no arguments come first.
    fn names(&self) -> impl Iterator<Item = &str> {
        let usable = self.queues.iter().map(|queue| &*queue.name);
        usable.chain(self.missing_args.iter().map(|queue| &*queue.name))
    }

    fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// A queue by name that needs no arguments; `label` is the user's name for it.
    fn usable(&self, name: &str, label: &str) -> Result<&hir::Queue, Fault> {
        let queue = self.queues.iter().find(|queue| queue.name == name);
        queue.ok_or_else(|| match self.missing_args.iter().find(|queue| queue.name == name) {
            Some(missing_args) => {
                missing_args.fault(label, |with| format!("name it with them: --queue \"{with}\""))
            }
            None => unknown(Some(self), name),
        })
    }

    /// The name of the last queue; one that needs arguments only if all do.
    fn last_name(&self) -> Result<&str, Fault> {
        let usable = self.queues.last().map(|queue| &*queue.name);
        let last = usable.or(self.missing_args.last().map(|queue| &*queue.name));
        last.ok_or_else(|| Fault::Input(format!("{}: it creates no queue", self.path)))
    }

    /// The last queue.
    fn last(&self) -> Result<Program, Fault> {
        let name = self.last_name()?;
        Program::made(name, self.usable(name, &self.path)?, self)
    }
}

/// Splits a label into a name and the arguments after it.
fn split(label: &str) -> (&str, &str) {
    let (name, arguments) = label.split_at(label.find('(').unwrap_or(label.len()));
    (name.trim(), arguments)
}

fn library_names() -> impl Iterator<Item = &'static str> {
    library::paths().filter_map(|path| path.strip_prefix(LIBRARY)?.strip_suffix(".weft"))
}

/// The fault of an unknown queue, with the known ones.
fn unknown(file: Option<&Source>, name: &str) -> Fault {
    let library: Vec<&str> = library_names().collect();
    let of_file = file.into_iter().flat_map(Source::names);
    let where_not = match file {
        None => "the library has no queue".to_owned(),
        Some(file) => format!("neither `{}` nor the library has a queue", file.path),
    };
    let help = match nearest(name, of_file.chain(library.iter().copied())) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the library has {}", library.join(", ")),
    };
    Fault::Input(format!("{where_not} `{name}`")).with_help(help)
}
