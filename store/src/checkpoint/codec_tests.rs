//! Segments come back as they were, and damaged ones never do.

use arrow::array::{Decimal128Array, StringArray};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// A segment of `n` rows with gaps in its ids; every eighth row is gone.
pub(in crate::checkpoint) fn segment(n: u64, full: bool, seed: u64) -> TableSegment {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut id = rng.random_range(0..100);
    let (mut ids, mut vnodes, mut weights) = (vec![], vec![], vec![]);
    for i in 0..n {
        id += rng.random_range(1..4);
        ids.push(id);
        vnodes.push(rng.random());
        weights.push(if !full && i % 8 == 0 { 0 } else { rng.random_range(1..3) });
    }
    let gone: Vec<bool> = weights.iter().map(|w| *w == 0).collect();
    let ints = Int64Array::from_iter(gone.iter().map(|g| (!g).then(|| rng.random_range(0..1000))));
    let texts = StringArray::from_iter(gone.iter().map(|g| (!g).then(|| format!("name {}", rng.random_range(0..500)))));
    let decimals = Decimal128Array::from_iter(gone.iter().map(|g| (!g).then(|| rng.random_range(0..10_000_000))));
    let rows = RecordBatch::try_from_iter_with_nullable([
        ("a", Arc::new(ints) as ArrayRef, true),
        ("b", Arc::new(texts), true),
        ("c", Arc::new(decimals.with_precision_and_scale(38, 10).unwrap()), true),
    ]);
    TableSegment { full, ids, vnodes, weights, rows: rows.unwrap() }
}

/// The same rows in another order.
fn shuffled(s: &TableSegment, seed: u64) -> TableSegment {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut order: Vec<u64> = (0..s.ids.len() as u64).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.random_range(0..=i));
    }
    let at = |i: &u64| *i as usize;
    TableSegment {
        full: s.full,
        ids: order.iter().map(|i| s.ids[at(i)]).collect(),
        vnodes: order.iter().map(|i| s.vnodes[at(i)]).collect(),
        weights: order.iter().map(|i| s.weights[at(i)]).collect(),
        rows: take_rows(&s.rows, &order).unwrap(),
    }
}

pub(in crate::checkpoint) fn parts(s: &TableSegment, layout: Layout) -> Vec<Part> {
    let mut parts = Parts::new(s, layout).unwrap();
    std::iter::from_fn(|| parts.next_part().unwrap()).collect()
}

fn named(parts: &[Part]) -> Vec<(String, Bytes)> {
    parts.iter().enumerate().map(|(i, p)| (format!("part {i}"), p.to_bytes())).collect()
}

fn decode(parts: &[(String, Bytes)]) -> StoreResult<Option<TableSegment>> {
    let mut all = Assembler::default();
    parts.iter().try_for_each(|(what, bytes)| all.add(what, bytes.clone()))?;
    all.finish()
}

fn layouts() -> Vec<Layout> {
    let mut all = Vec::new();
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        for (batch_rows, part_bytes) in [(1, 1), (7, 1000), (1000, 20_000), (16 << 10, 16 << 20)] {
            all.push(Layout { batch_rows, part_bytes, compression, ..Layout::default() });
        }
    }
    all
}

#[test]
fn a_segment_comes_back_as_it_was() {
    for layout in layouts() {
        for (n, full) in [(0, true), (1, true), (1, false), (300, true), (300, false)] {
            let s = segment(n, full, n);
            let encoded = parts(&s, layout);
            for p in &encoded {
                assert_eq!(p.size, p.to_bytes().len() as u64);
                assert_eq!(checksum(&p.chunks), checksum(&[p.to_bytes()]));
            }
            assert_eq!(encoded.iter().map(|p| p.rows).sum::<u64>(), n);
            assert_eq!(decode(&named(&encoded)).unwrap().unwrap(), s);
        }
    }
}

#[test]
fn parts_are_as_large_as_asked_and_batches_too() {
    let s = segment(20_000, true, 1);
    let layout = Layout { batch_rows: 500, part_bytes: 50_000, compression: None, ..Layout::default() };
    let encoded = parts(&s, layout);
    assert!(encoded.len() > 5, "{}", encoded.len());
    for p in &encoded {
        assert!(p.size < 50_000 + 40_000, "{}", p.size);
        let mut reader = PartReader::new("p", p.to_bytes()).unwrap();
        let (first, last) = reader.bounds().unwrap();
        let mut ids = Vec::new();
        while let Some(r) = reader.next_rows().unwrap() {
            assert!(r.ids.len() <= 500);
            ids.extend(r.ids);
        }
        assert_eq!((ids[0], ids[ids.len() - 1]), (first, last));
    }
}

#[test]
fn wide_rows_come_in_smaller_batches() {
    let wide = "x".repeat(10_000);
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..300).map(|_| &wide)));
    let s = TableSegment {
        full: true,
        ids: (0..300).collect(),
        vnodes: vec![0; 300],
        weights: vec![1; 300],
        rows: RecordBatch::try_from_iter([("t", texts)]).unwrap(),
    };
    let layout = Layout { batch_bytes: 100_000, ..Layout::default() };
    let encoded = parts(&s, layout);
    let mut reader = PartReader::new("p", encoded[0].to_bytes()).unwrap();
    let mut batches = 0;
    while let Some(r) = reader.next_rows().unwrap() {
        assert!(r.ids.len() <= 10);
        batches += 1;
    }
    assert!(batches >= 30);
    assert_eq!(decode(&named(&encoded)).unwrap().unwrap(), s);
}

#[test]
fn rows_are_stored_in_order_of_their_ids() {
    let s = segment(1000, false, 2);
    let mut other = shuffled(&s, 3);
    for layout in layouts().into_iter().skip(1).step_by(2) {
        assert_eq!(decode(&named(&parts(&other, layout))).unwrap().unwrap(), s);
    }
    // The last row of an id counts, as it does when tables are restored.
    other.ids[0] = other.ids[999];
    let back = decode(&named(&parts(&other, Layout::default()))).unwrap().unwrap();
    let at = back.ids.binary_search(&other.ids[999]).unwrap();
    assert_eq!((back.ids.len(), back.weights[at]), (999, other.weights[999]));
    assert_eq!(back.rows.slice(at, 1), other.rows.slice(999, 1));
}

#[test]
fn nothing_changed_is_no_part_but_an_empty_table_is_one() {
    assert!(parts(&segment(0, false, 0), Layout::default()).is_empty());
    assert_eq!(decode(&[]).unwrap(), None);
    let empty = segment(0, true, 0);
    let encoded = parts(&empty, Layout::default());
    assert_eq!(encoded.len(), 1);
    assert_eq!(decode(&named(&encoded)).unwrap(), Some(empty));
}

#[test]
fn rows_may_have_no_columns() {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(3));
    let rows = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    for ids in [vec![1, 2, 9], vec![9, 1, 2]] {
        let s = TableSegment { full: true, ids, vnodes: vec![0; 3], weights: vec![1; 3], rows: rows.clone() };
        let layout = Layout { batch_rows: 2, ..Layout::default() };
        let back = decode(&named(&parts(&s, layout))).unwrap().unwrap();
        assert_eq!((back.ids, back.rows.num_rows()), (vec![1, 2, 9], 3));
    }
}

fn is_corrupt(bytes: Vec<u8>) -> bool {
    matches!(decode(&[("p".into(), bytes.into())]), Err(StoreError::Corrupt { .. }))
}

#[test]
fn a_damaged_part_is_told_whatever_byte_it_is() {
    for compression in [None, Some(CompressionType::LZ4_FRAME)] {
        let layout = Layout { batch_rows: 4, compression, ..Layout::default() };
        let good = parts(&segment(9, false, 5), layout)[0].to_bytes().to_vec();
        for i in 0..good.len() {
            for flip in [1u8, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[i] ^= flip;
                assert!(is_corrupt(bad), "byte {i} ^ {flip}");
            }
            assert!(is_corrupt(good[..i].to_vec()), "cut at {i}");
        }
        let mut longer = good.clone();
        longer.push(0);
        assert!(is_corrupt(longer));
        assert!(is_corrupt([good.clone(), good].concat()));
    }
}

/// Sums a part up again after its header was changed.
fn resealed(mut part: Vec<u8>) -> Vec<u8> {
    let mut hash = Xxh3::new();
    hash.update(&part[..48]);
    hash.update(&part[HEADER..]);
    part[48..HEADER].copy_from_slice(&hash.digest128().to_le_bytes());
    part
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let mut part = parts(&segment(3, true, 0), Layout::default())[0].to_bytes().to_vec();
    part[8] = 2;
    let newer = decode(&[("p".into(), resealed(part).into())]).unwrap_err();
    assert_eq!(newer, StoreError::Newer { what: "p".into(), found: 2, known: 1 });
    assert_eq!(newer.to_string(), "p has format version 2; this version of spate reads up to 1");
}

#[test]
fn what_was_written_wrongly_is_not_believed_though_its_checksum_fits() {
    let good = parts(&segment(9, false, 5), Layout { batch_rows: 4, ..Layout::default() })[0].to_bytes().to_vec();
    // Batches and rows that are not there, or more than said; no end of the stream.
    for (at, value) in [(12, 2), (12, 4), (16, 8), (16, 10), (24, 1)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(is_corrupt(resealed(bad)), "{at} {value}");
    }
}

#[test]
fn parts_that_do_not_belong_together_are_told() {
    let layout = Layout { batch_rows: 50, part_bytes: 1, ..Layout::default() };
    let mut ps = named(&parts(&segment(200, true, 1), layout));
    assert!(ps.len() >= 4);
    ps.swap(0, 1);
    assert!(matches!(decode(&ps), Err(StoreError::Corrupt { .. })));
    ps.swap(0, 1);
    ps[3] = named(&parts(&segment(200, false, 1), layout))[3].clone();
    assert!(matches!(decode(&ps), Err(StoreError::Corrupt { .. })));
}
