//! Finds the files of the lines that ended frames.

use weft_api::Packets;
use weft_lang::hir::Network;
use weft_lang::source::{SourceMap, Span};

/// Maps the elements and protocols of a program to the files that define them.
#[derive(Clone, Copy)]
pub struct DefinitionFiles<'n> {
    /// The program.
    pub network: &'n Network,
    /// Its texts.
    pub sources: &'n SourceMap,
}

impl DefinitionFiles<'_> {
    /// The file of an instance's element; empty if the program has no such instance now.
    pub fn of_instance(self, chain: &str, instance: &str) -> String {
        let chain = self.network.chains.iter().find(|known| known.name == chain);
        let instance = chain.and_then(|chain| chain.instances.iter().find(|known| known.name == instance));
        self.file(instance.map(|instance| self.network.elements[instance.element].span))
    }

    /// The file of a protocol; empty if the program has no such protocol now.
    pub fn of_protocol(self, name: &str) -> String {
        let at = self.network.protocols.iter().position(|known| known.name == name);
        self.file(at.and_then(|at| self.network.protocol_spans.get(at)).copied())
    }

    /// Fills in the file of each line in a node's report that ended frames.
    pub fn name_files(self, packets: &mut Packets) {
        for chain in &mut packets.chains {
            for end in &mut chain.ends {
                end.file = self.of_instance(&chain.name, &end.element);
            }
            for malformed in &mut chain.malformed {
                malformed.file = self.of_protocol(&malformed.protocol);
            }
        }
    }

    fn file(self, span: Option<Span>) -> String {
        span.map_or(String::new(), |span| self.sources.file(span.file).name().to_owned())
    }
}

/// A line for people: `library/elements/router.weft:75`.
pub fn location(file: &str, line: u32) -> String {
    if file.is_empty() { format!("line {line}") } else { format!("{file}:{line}") }
}
