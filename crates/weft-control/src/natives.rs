//! Prepares the native functions of a plan.

use crate::host::Host;
use std::sync::Arc;
use weft_core::native::{NativeDecl, PrepareError, Prepared};
use weft_ir::program::ChainProgram;
use weft_lang::diagnostic::{Code, Diagnostic, code};
use weft_lang::hir;
use weft_lang::source::Span;

/// Prepares the functions of a program, in order.
///
/// # Errors
/// A diagnostic for each function that cannot be prepared: at its declaration, or else at `place`.
pub(crate) fn prepare_all(
    host: &dyn Host,
    network: &hir::Network,
    program: &ChainProgram,
    place: Span,
) -> Result<Vec<Arc<dyn Prepared>>, Vec<Diagnostic>> {
    let (mut ready, mut refused) = (Vec::new(), Vec::new());
    for decl in &program.natives {
        match host.prepare(decl) {
            Ok(function) => ready.push(function),
            Err(why) => refused.push(diagnostic(network, decl, &why, place)),
        }
    }
    if refused.is_empty() { Ok(ready) } else { Err(refused) }
}

/// Warnings for declared functions that could not run on this machine. They are no errors: the machine that checks a
/// network need not run it.
pub(crate) fn warnings(host: &dyn Host, network: &hir::Network) -> Vec<Diagnostic> {
    let declared = network.functions.iter().filter(|function| function.native.info().needs_key);
    let decl = |function: &hir::NativeFunction| NativeDecl {
        name: function.name.clone(),
        native: function.native,
        constants: Vec::new(),
        options: function.options.iter().map(|o| (o.name.to_owned(), o.value.clone())).collect(),
        site: 0,
        cost: function.cost,
    };
    let warning = |function: &hir::NativeFunction| {
        let why = host.prepare(&decl(function)).err()?;
        let message = format!("`{}` could not run on this machine: {why}", function.name);
        Some(Diagnostic::warning(code_of(&why), message).at(function.span, "needs its key where it runs"))
    };
    declared.filter_map(warning).collect()
}

/// The diagnostic of a native function whose key or constant is not valid.
fn diagnostic(network: &hir::Network, decl: &NativeDecl, why: &PrepareError, place: Span) -> Diagnostic {
    let declared = network.functions.iter().find(|function| function.name == decl.name);
    let span = declared.map_or(place, |function| function.span);
    let diagnostic = Diagnostic::error(code_of(why), format!("`{}` cannot be made ready", decl.name))
        .at(span, why.to_string());
    match why {
        PrepareError::Key(_) => {
            diagnostic.with_help("see the guide, \"Keys\", for the forms that a key may have")
        }
        PrepareError::Constant(_) => diagnostic,
    }
}

fn code_of(why: &PrepareError) -> Code {
    match why {
        PrepareError::Key(_) => code::KEY_UNUSABLE,
        PrepareError::Constant(_) => code::FUNCTION_UNPREPARED,
    }
}
