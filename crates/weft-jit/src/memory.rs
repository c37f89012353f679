//! Memory that holds machine code.

use cranelift_jit::{BranchProtection, JITMemoryKind, JITMemoryProvider, SystemMemoryProvider};

/// The machine code of one function. It is never written again, and its memory is freed when it is dropped.
pub(crate) struct Code {
    memory: SystemMemoryProvider,
    entry: *const u8,
    bytes: usize,
}

// SAFETY: behind `entry` is memory that belongs to this value alone. It is written in `new` and is read-only and
// executable from then on, so it may move to, and be run by, any thread. `memory` is touched in `new` and `drop`.
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

    /// Where the code begins.
    pub(crate) fn entry(&self) -> *const u8 {
        self.entry
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: `entry` is handed out to `Segment::run` alone, for the time of a call that borrows this value, so
        // no thread is in this code now, and none can come.
        unsafe { self.memory.free_memory() };
    }
}
