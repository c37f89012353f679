//! Tests the files of sinks before a network starts that writes to them.

use crate::fault::Fault;
use std::io::ErrorKind;
use weft_control::compile::Compiled;
use weft_control::files::folder_of;
use weft_engine::plan::SinkTarget;
use weft_io::writer;

/// Tests that rows can be appended to each file of a program's sinks.
///
/// # Errors
/// The environment is at fault: which sink, which file, and why. Without this test a network whose log is lost would
/// look healthy.
pub(crate) fn try_to_open(compiled: &Compiled) -> Result<(), Fault> {
    let on_calls = compiled.plan.chains.iter().map(|chain| &chain.program);
    let on_ports = compiled.packets.iter().flat_map(|plan| &plan.chains).map(|chain| &chain.program);
    for program in on_calls.chain(on_ports) {
        for sink in &program.sinks {
            let SinkTarget::File(path) = &sink.target else { continue };
            writer::try_to_open(path).map_err(|error| {
                let name = format!("{}.{}.{}", program.name, sink.owner, sink.name);
                let (why, help) = explain(path, &error);
                Fault::environment(format!("sink `{name}` cannot write to `{path}`: {why}")).with_help(help)
            })?;
        }
    }
    Ok(())
}

/// Why a file cannot be opened, as the end of a sentence, and a help.
fn explain(path: &str, error: &std::io::Error) -> (String, String) {
    match error.kind() {
        ErrorKind::NotFound => {
            let folder = folder_of(path);
            (
                "there is no such folder".to_owned(),
                format!("make the folder `{folder}`, or name another file"),
            )
        }
        ErrorKind::PermissionDenied => (
            "this user may not write there".to_owned(),
            "let this user write it, or name another file; root, too, gives up the right to write to files of \
             others"
                .to_owned(),
        ),
        ErrorKind::IsADirectory => ("it is a folder".to_owned(), "name a file in it".to_owned()),
        _ => (error.to_string(), "name another file".to_owned()),
    }
}
