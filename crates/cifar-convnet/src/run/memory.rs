//! How much memory this process has taken.

use std::fs;

/// The most memory in bytes that the process has held at any moment so far (resident, not merely
/// reserved). `None` where the system does not say: it is read from Linux's `/proc`.
pub fn peak() -> Option<u64> {
    high_water_mark(&fs::read_to_string("/proc/self/status").ok()?)
}

/// `peak` for people.
pub fn describe(peak: Option<u64>) -> String {
    match peak {
        Some(bytes) => format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)),
        None => "not available on this system".to_owned(),
    }
}

/// The line `VmHWM:  12345 kB` of a process's status; Linux means units of 1024 bytes.
fn high_water_mark(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_read_or_honestly_missing() {
        let status = "Name:\tbandroot\nVmPeak:\t  999 kB\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(high_water_mark(status), Some(2 << 20));
        assert_eq!(describe(high_water_mark(status)), "2 MiB");
        for status in ["", "VmHWM:\n", "VmHWM: x kB\n", "VmHWM: 5 MB\n", "VmPeak: 7 kB\n"] {
            assert_eq!(high_water_mark(status), None, "{status:?}");
        }
        assert_eq!(describe(None), "not available on this system");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_mark_rises_with_what_is_touched_and_never_falls() {
        let before = peak().unwrap();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        let with = peak().unwrap();
        // The kernel counts per core and adds up when it suits it: a few pages more or less.
        let slack = 4 << 20;
        assert!(with + slack >= before.max(touched.len() as u64));
        drop(touched);
        assert!(peak().unwrap() + slack >= with);
    }
}
