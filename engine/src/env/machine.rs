//! What the machine, or the container, has to give.

use std::fs::read_to_string;

/// Memory that this process may use in all, in bytes: that of the machine, or the limit of the control group
/// (container) that it is in, if that is less. `None` where neither is known (not Linux).
pub fn memory_bytes() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|t| total(&t));
    let group = read_to_string("/proc/self/cgroup").ok().and_then(|t| group_limit(&t));
    match (machine, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// `MemTotal` of `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of the group in `/proc/self/cgroup` and of those that it is in.
fn group_limit(groups: &str) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            // No limit is the word "max", or a number greater than any machine's memory.
            let limit = read_to_string(format!("{root}{path}/{file}")).ok().and_then(|t| t.trim().parse::<u64>().ok());
            least = match (least, limit) {
                (Some(a), Some(b)) => Some(u64::min(a, b)),
                (a, b) => a.or(b),
            };
            match path.rfind('/') {
                Some(i) => path = &path[..i],
                None => break,
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        assert_eq!(total("MemTotal:       24576000 kB\nMemFree: 1 kB\n"), Some(24_576_000 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_machine_has_memory() {
        assert!(memory_bytes().is_some_and(|b| b > 64 << 20));
    }
}
