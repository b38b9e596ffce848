//! Releases the resident pages of Wherry's own code and of its libraries. On a page fault the kernel maps the surrounding 64 KiB,
//! and it unmaps nothing while memory is not short. The code of the start, most of which never runs again, would keep megabytes
//! resident for years. Released pages stay in the page cache and are mapped again on their next use.

use rustix::mm::{Advice, madvise};
use std::fs;
use std::io::{self, Read};

/// The maximum size of /proc/self/maps that is read, in bytes. The actual size is about 9 KiB.
const MAX_MAPS: u64 = 256 << 10;

/// Releases all code that is mapped now.
///
/// # Errors
/// /proc/self/maps cannot be read, or the kernel rejects the advice.
#[allow(unsafe_code)]
pub fn give_back() -> io::Result<()> {
    let mut maps = String::with_capacity(16 << 10);
    fs::File::open("/proc/self/maps")?.take(MAX_MAPS).read_to_string(&mut maps)?;
    for (start, end) in maps.lines().filter_map(code) {
        // SAFETY: the pages have the content of the file, because they cannot have been written: the mapping is private
        // and not writable, and neither Rust's linker nor those of distributions put relocations into code. The kernel
        // reads the pages from the file again at the next access, in every thread. The mapping itself stays.
        unsafe { madvise(std::ptr::with_exposed_provenance_mut(start), end - start, Advice::LinuxDontNeed)? };
    }
    Ok(())
}

/// The start and end address in a line of /proc/self/maps, if the line is code from a file.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let (access, inode, path) = (words.next()?, words.nth(2)?, words.next()?);
    (access == "r-xp" && inode != "0" && path.starts_with('/') && start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_from_files_is_given_back() {
        let code_at = "55d0c0a00000-55d0c0e08000 r-xp 000cc000 fe:00 1234   /usr/bin/wherry";
        assert_eq!(code(code_at), Some((0x55d0_c0a0_0000, 0x55d0_c0e0_8000)));
        assert_eq!(code("7f00-8f00 r-xp 00000000 fe:00 77 /usr/bin/wherry (deleted)"), Some((0x7f00, 0x8f00)));
        for other in [
            // Relocated and then made read-only.
            "55d0c0f00000-55d0c0f12000 r--p 004d4000 fe:00 1234   /usr/bin/wherry",
            "55d0c0f12000-55d0c0f13000 rw-p 004e6000 fe:00 1234   /usr/bin/wherry",
            "55d0c0f12000-55d0c0f13000 rwxp 004e6000 fe:00 1234   /usr/bin/wherry",
            "55d0c0f12000-55d0c0f13000 r-xs 004e6000 fe:00 1234   /dev/shm/x",
            "7ffd1a5f2000-7ffd1a5f4000 r-xp 00000000 00:00 0      [vdso]",
            "7ffd1a5f2000-7ffd1a5f4000 r-xp 00000000 00:00 0",
            "",
            "not a line",
        ] {
            assert_eq!(code(other), None, "{other}");
        }
    }

    /// The resident size of code from files, in KiB.
    fn resident() -> u64 {
        let text = fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut is_code, mut sum) = (false, 0);
        for line in text.lines() {
            if let Some(size) = line.strip_prefix("Rss:") {
                sum += if is_code { size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() } else { 0 };
            } else if line.as_bytes()[0].is_ascii_digit() || line.as_bytes()[0].is_ascii_lowercase() {
                is_code = code(line).is_some();
            }
        }
        sum
    }

    #[test]
    fn code_that_was_given_back_goes_on_to_work() {
        // Tests that run in parallel map pages again, so try several times.
        let smaller = (0..20).any(|_| {
            let before = resident();
            give_back().unwrap();
            resident() < before
        });
        assert!(smaller);
    }
}
