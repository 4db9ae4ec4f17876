//! What the kernel of a guest says against itself: its reports of errors, and the memory that it has lost.

use crate::error::Error;
use crate::guest::Guest;

/// Texts in kernel messages that report an error, of the kernel itself or of one of its checks.
const ERRORS: [&str; 21] = [
    // KASAN, scheduling while atomic, lockups, bad pages; without a colon: SLUB, BUG().
    "BUG: ",
    "BUG ",
    "WARNING: ",
    "KASAN: ",
    "UBSAN: ",
    "DMA-API: ",
    "ODEBUG: ",
    "Oops",
    "Kernel panic",
    "general protection fault",
    // Lockdep has given up.
    "INFO: trying to register non-static key",
    "INFO: lockdep is turned off",
    "INFO: task ",
    "detected stall",
    "nobody cared",
    "pagealloc: ",
    "ref_tracker: ",
    "unregister_netdevice: waiting",
    "kmemleak: Cannot",
    "kmemleak: Memory pool empty",
    "kmemleak: Kernel memory leak detector disabled",
];

/// Messages with one of these texts report no error.
const HARMLESS: [&str; 2] = ["DMA-API: preallocated ", "DMA-API: debugging enabled "];

/// Looks for lost memory. Kmemleak reports memory that is older than 5 s and has not changed between two scans (Linux,
/// mm/kmemleak.c). The last scan finds references that were in registers during the one before.
const SCAN: &str = "cd /sys/kernel/debug && [ -e kmemleak ] || exit 0; \
                    echo scan >kmemleak; sleep 5; echo scan >kmemleak; echo scan >kmemleak; cat kmemleak";

impl Guest {
    /// Returns the errors (an oops, a warning) that the guest's kernel has reported since its boot. A kernel with checks
    /// ([`Release::Debug`]) also reports what it finds: KASAN, UBSAN, lockdep, DMA mappings, hung tasks; each block of memory
    /// that nothing refers to is one more entry. Takes at least 5 s there.
    ///
    /// [`Release::Debug`]: crate::Release::Debug
    pub fn kernel_complaints(&self) -> Result<Vec<String>, Error> {
        let lost = self.ok(SCAN)?;
        let mut complaints = reports(&self.ok("dmesg")?);
        complaints.extend(blocks(&lost));
        Ok(complaints)
    }
}

/// Returns the messages that report errors.
fn reports(messages: &str) -> Vec<String> {
    let has = |line: &str, texts: &[&str]| texts.iter().any(|text| line.contains(text));
    messages.lines().filter(|line| has(line, &ERRORS) && !has(line, &HARMLESS)).map(str::to_owned).collect()
}

/// Splits kmemleak's list into its blocks of memory.
fn blocks(list: &str) -> Vec<String> {
    const START: &str = "unreferenced object";
    list.split(START).skip(1).map(|block| format!("kmemleak: {START}{}", block.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_report_errors_are_found() {
        let quiet = "[    0.1] DMA-API: preallocated 65536 debug entries\n\
                     [    0.1] DMA-API: debugging enabled by kernel config\n\
                     [    0.1] kmemleak: Kernel memory leak detector initialized (mem pool available: 15000)\n\
                     [    0.2] e1000: Copyright (c) 1999-2006 Intel Corporation.\n";
        assert_eq!(reports(quiet), [""; 0]);
        let errors = [
            "[   10.0] BUG: KASAN: slab-out-of-bounds in faults_init+0x2f/0x60 [faults]",
            "[   10.1] WARNING: possible circular locking dependency detected",
            "[   10.2] DMA-API: e1000 0000:00:02.0: device driver frees DMA memory with wrong function",
            "[   10.3] INFO: task insmod:77 blocked for more than 120 seconds.",
            "[   10.4] Oops: 0000 [#1] SMP KASAN",
        ];
        assert_eq!(reports(&format!("{quiet}{}\n[   11.0] Call Trace:", errors.join("\n"))), errors);
    }

    #[test]
    fn each_lost_block_is_one_complaint() {
        let list = "unreferenced object 0xffff888003a5f800 (size 96):\n  comm \"insmod\", pid 77\n  backtrace:\n\
                    unreferenced object 0xffff888003a5f900 (size 32):\n  comm \"sh\", pid 1\n";
        let found = blocks(list);
        assert_eq!(found.len(), 2);
        assert!(found[1].starts_with("kmemleak: unreferenced object 0xffff888003a5f900 (size 32):\n  comm"));
        assert_eq!(blocks(""), [""; 0]);
    }
}
