//! Queues that cannot be used without arguments. A checked program contains one queue for each use, with its arguments,
//! so this module reads the declarations from the source.

use crate::fault::Fault;
use weft_lang::ast::Item;
use weft_lang::parser;
use weft_lang::source::SourceMap;

/// A queue with parameters that have no default.
pub struct MissingArgs {
    /// The queue.
    pub name: String,
    params: Vec<String>,
}

/// The queues with required parameters in a program's files, in order.
pub fn queues(sources: &SourceMap) -> Vec<MissingArgs> {
    let items = sources.files().flat_map(|(file, _)| parser::parse(sources, file).0.items);
    items.filter_map(|item| MissingArgs::of(&item)).collect()
}

impl MissingArgs {
    fn of(item: &Item) -> Option<Self> {
        let Item::Queue(queue) = item else { return None };
        let params = queue.params.iter().filter(|param| param.default.is_none());
        let params: Vec<String> = params.map(|param| param.name.name.clone()).collect();
        (!params.is_empty()).then(|| Self { name: queue.name.name.clone(), params })
    }

    /// The fault of a queue that was named `named`, without arguments. `how` gets the name with arguments, and returns
    /// a help that shows how to use it.
    pub fn fault(&self, named: &str, how: impl FnOnce(&str) -> String) -> Fault {
        let names: Vec<String> = self.params.iter().map(|name| format!("`{name}`")).collect();
        let what = if names.len() == 1 { "an argument" } else { "arguments" };
        let with: Vec<String> = self.params.iter().map(|name| format!("{name} = ...")).collect();
        let with = format!("{named} ({})", with.join(", "));
        Fault::Input(format!("queue `{}` needs {what} for {}", self.name, names.join(" and ")))
            .with_help(how(&with))
    }
}
