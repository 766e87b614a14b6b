//! Names of objects. They say who wrote what, so that two writers never want the same name and
//! what is to be deleted can be told from the name alone.

use std::fmt;
use std::str::FromStr;

use super::StoreError;
use spate_engine::task::TaskId;
use spate_engine::types::Epoch;

/// The name of an object, below the root of all snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ObjectName {
    /// A part of a table's segment.
    Part(PartName),
    /// A manifest that is too large for the meta store.
    Manifest(ManifestName),
}

/// A part of a table's segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartName {
    /// Rises with every restore from a backup.
    pub incarnation: u32,
    /// The task.
    pub task: TaskId,
    /// Of the task that wrote it. Never given twice, not even by two leaders that do not know of
    /// each other: it rises with the term first.
    pub generation: u64,
    /// The snapshot's epoch.
    pub epoch: Epoch,
    /// Made of a chain up to that epoch, not by the task's barrier.
    pub merged: bool,
    /// Operator within the task.
    pub op: u32,
    /// Table within the operator.
    pub table: u32,
    /// Number within the segment.
    pub part: u32,
}

/// A manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ManifestName {
    /// Rises with every restore from a backup.
    pub incarnation: u32,
    /// The job.
    pub job: u64,
    /// Of the leader that wrote it.
    pub term: u32,
    /// Rises with every manifest of the job.
    pub sequence: u64,
}

impl ObjectName {
    /// The job that it belongs to.
    pub fn job(&self) -> u64 {
        match self {
            Self::Part(p) => p.task.job,
            Self::Manifest(m) => m.job,
        }
    }

    /// Rises with every restore from a backup.
    pub fn incarnation(&self) -> u32 {
        match self {
            Self::Part(p) => p.incarnation,
            Self::Manifest(m) => m.incarnation,
        }
    }
}

impl fmt::Display for ObjectName {
    // Short, as manifests consist of names for the most part; one directory per job, so that
    // there is no need to remove directories.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(p) => {
                let TaskId { job, fragment, index } = p.task;
                let kind = if p.merged { "merged" } else { "taken" };
                write!(f, "i{}/job{job}/f{fragment}.{index}-g{}-e{}-{kind}", p.incarnation, p.generation, p.epoch)?;
                write!(f, "-{}.{}.{}", p.op, p.table, p.part)
            }
            Self::Manifest(m) => write!(f, "i{}/job{}/manifest-t{}-{}", m.incarnation, m.job, m.term, m.sequence),
        }
    }
}

impl FromStr for ObjectName {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        // What does not come out as it went in is nobody's name.
        parse(text)
            .filter(|n| n.to_string() == text)
            .ok_or_else(|| StoreError::Invalid(format!("\"{text}\" is no name of an object")))
    }
}

fn parse(text: &str) -> Option<ObjectName> {
    let mut levels = text.split('/');
    let incarnation = levels.next()?.strip_prefix('i')?.parse().ok()?;
    let job = levels.next()?.strip_prefix("job")?.parse().ok()?;
    let mut pieces = levels.next()?.split('-');
    let first = pieces.next()?;
    if first == "manifest" {
        let term = pieces.next()?.strip_prefix('t')?.parse().ok()?;
        let sequence = pieces.next()?.parse().ok()?;
        return Some(ObjectName::Manifest(ManifestName { incarnation, job, term, sequence }));
    }
    let (fragment, index) = first.strip_prefix('f')?.split_once('.')?;
    let task = TaskId { job, fragment: fragment.parse().ok()?, index: index.parse().ok()? };
    let generation = pieces.next()?.strip_prefix('g')?.parse().ok()?;
    let epoch = pieces.next()?.strip_prefix('e')?.parse().ok()?;
    let merged = pieces.next()? == "merged";
    let mut numbers = pieces.next()?.split('.').map(|n| n.parse().ok());
    let [op, table, part] = [numbers.next()??, numbers.next()??, numbers.next()??];
    Some(ObjectName::Part(PartName { incarnation, task, generation, epoch, merged, op, table, part }))
}

impl From<ObjectName> for String {
    fn from(n: ObjectName) -> Self {
        n.to_string()
    }
}

impl TryFrom<String> for ObjectName {
    type Error = StoreError;

    fn try_from(text: String) -> Result<Self, StoreError> {
        text.parse()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_nothing_else_is() {
        let task = TaskId { job: 7, fragment: 2, index: 31 };
        let part = PartName { incarnation: 1, task, generation: 4, epoch: 12, merged: false, op: 1, table: 0, part: 9 };
        let manifest = ManifestName { incarnation: 0, job: u64::MAX, term: u32::MAX, sequence: 5 };
        let names = [
            ObjectName::Part(part),
            ObjectName::Part(PartName { merged: true, ..part }),
            ObjectName::Manifest(manifest),
        ];
        for name in names {
            let text = name.to_string();
            assert_eq!(text.parse::<ObjectName>().unwrap(), name);
            for i in 0..text.len() {
                assert!(text[..i].parse::<ObjectName>().is_err(), "{}", &text[..i]);
                let spaced = format!("{}+{}", &text[..i], &text[i + 1..]);
                assert!(spaced.parse::<ObjectName>().is_err(), "{spaced}");
            }
            assert!(format!("{text}.1").parse::<ObjectName>().is_err());
        }
    }
}
