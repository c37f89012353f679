//! Executable memory for machine code.

use cranelift_jit::{BranchProtection, JITMemoryKind, JITMemoryProvider, SystemMemoryProvider};

/// The machine code of one function. It is never written again; dropping the value frees it.
pub(crate) struct Code {
    memory: SystemMemoryProvider,
    entry: *const u8,
    bytes: usize,
}

// SAFETY: `entry` points to memory that only this value owns. It is written in `new` and is read-only and executable
// from then on, so it may move to any thread and be run by any. `memory` is accessed only in `new` and `drop`.
unsafe impl Send for Code {}
// SAFETY: as above; shared use only reads `entry` and `bytes`.
unsafe impl Sync for Code {}

impl Code {
    /// Copies position-independent machine code that needs no relocation into executable memory.
    ///
    /// # Errors
    /// The system gives no memory, or does not allow it to be executed.
    pub(crate) fn new(code: &[u8], align: u64) -> Result<Self, String> {
        let mut memory = SystemMemoryProvider::new();
        let entry = memory
            .allocate(code.len(), align, JITMemoryKind::Executable)
            .map_err(|error| format!("no memory for code: {error}"))?;
        // SAFETY: `allocate` returned `code.len()` writable bytes that nothing else points to.
        unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), entry, code.len()) };
        memory
            .finalize(BranchProtection::None)
            .map_err(|error| format!("memory for code cannot be made executable: {error}"))?;
        Ok(Self { memory, entry, bytes: code.len() })
    }

    /// The address of the code.
    pub(crate) fn entry(&self) -> *const u8 {
        self.entry
    }

    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: only `Segment::run` gets `entry`, for a call that borrows this value, so no thread runs this code
        // now, and none can start.
        unsafe { self.memory.free_memory() };
    }
}
