//! The LETs of a handler.

use crate::ast::Ident;
use crate::hir::{Local, LocalId};
use crate::types;
use weft_core::Type;

/// The locals of a handler, and their names that are visible at a point.
#[derive(Debug, Default)]
pub(in crate::check) struct Locals {
    all: Vec<Local>,
    /// Innermost last; None for one whose value has an error.
    visible: Vec<(Ident, Option<LocalId>)>,
}

impl Locals {
    pub(in crate::check) fn add(&mut self, name: &Ident, ty: Type, nullable: bool) -> LocalId {
        self.all.push(Local { name: name.name.clone(), ty: types::without_length(ty), nullable });
        LocalId(self.all.len() - 1)
    }

    pub(in crate::check) fn get(&self, id: LocalId) -> &Local {
        &self.all[id.0]
    }

    /// Makes a name visible up to the end of the block.
    pub(in crate::check) fn show(&mut self, name: &Ident, local: Option<LocalId>) {
        self.visible.push((name.clone(), local));
    }

    /// The visible names, innermost last.
    pub(in crate::check) fn visible(&self) -> &[(Ident, Option<LocalId>)] {
        &self.visible
    }

    /// The innermost LET of a name.
    pub(in crate::check) fn find(&self, name: &str) -> Option<&(Ident, Option<LocalId>)> {
        self.visible.iter().rev().find(|(known, _)| known.name == name)
    }

    /// Hides all names but the first `n`.
    pub(in crate::check) fn hide_after(&mut self, n: usize) {
        self.visible.truncate(n);
    }

    pub(in crate::check) fn into_all(self) -> Vec<Local> {
        self.all
    }
}
