//! The queue programs for gates: those of `examples/gates`, and others of the library.

use std::fs;
use std::path::Path;
use weft_core::schema::Schema;
use weft_ir::queue::QueueProgram;
use weft_lang::diagnostic::{RenderOptions, render};
use weft_lang::resolve::{Resolver, SchemaFault, SchemaSource};

#[path = "../../../weft-control/library_folder.rs"]
mod library_folder;

/// Files of the source tree.
struct Files;

impl Resolver for Files {
    fn text(&mut self, path: &str, _: Option<&str>) -> Result<String, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = match path.strip_prefix("library/") {
            Some(inside) => library_folder::library_folder(&root).join(inside),
            None => root.join(path),
        };
        fs::read_to_string(path).map_err(|error| error.to_string())
    }

    fn schema(&mut self, _: &SchemaSource<'_>, _: Option<&str>) -> Result<Schema, SchemaFault> {
        Err("there are no schemas here".to_owned().into())
    }
}

/// The queue of this name in a file.
pub(crate) fn queue(file: &str, name: &str) -> QueueProgram {
    let (network, diagnostics, sources) = weft_lang::check::check(file, &mut Files);
    let told = || {
        diagnostics.iter().map(|found| render(found, &sources, RenderOptions::default())).collect::<String>()
    };
    let network = network.unwrap_or_else(|| panic!("{}", told()));
    let queue = network.queues.iter().find(|queue| queue.name == name);
    weft_opt::lower::queue(queue.unwrap_or_else(|| panic!("there is no {name} in {file}")))
}

pub(crate) fn codel() -> QueueProgram {
    queue("examples/gates/codel.weft", "codel_gates")
}

/// Times by roots of inputs.
pub(crate) fn roots() -> QueueProgram {
    queue("crates/weft-verilog/tests/programs/roots.weft", "roots")
}

/// The library's CoDel.
pub(crate) fn library_codel() -> QueueProgram {
    queue("library/queues/codel.weft", "codel")
}

pub(crate) fn red() -> QueueProgram {
    queue("library/queues/red.weft", "red")
}

pub(crate) fn srpt() -> QueueProgram {
    queue("library/queues/srpt.weft", "srpt")
}

pub(crate) fn pfabric() -> QueueProgram {
    queue("library/queues/pfabric.weft", "pfabric")
}
