//! The catch-up law against failures of a system that we did not build: 60 of a Flink job, published
//! with Khaos (Geldenhuys et al., arXiv 2109.02340). Skipped where the figures are not at hand.

use rand::Rng;

use super::testing::rng;

#[derive(Clone, Copy)]
struct Row {
    interval_s: f64,
    rows_per_s: f64,
    outage_s: f64,
}

fn rows() -> Option<Vec<Row>> {
    let dir = std::env::var("SPATE_SHARED").unwrap_or_else(|_| {
        let project = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        project.join("..").join("shared").display().to_string()
    });
    let text = std::fs::read_to_string(format!("{dir}/data/khaos_iot_failures.csv")).ok()?;
    let parse = |l: &str| {
        let x: Vec<f64> = l.split(',').map(|f| f.trim().parse().unwrap()).collect();
        Row { interval_s: x[0], rows_per_s: x[1], outage_s: x[3] }
    };
    Some(text.lines().skip(1).map(parse).collect())
}

/// O = (T0 + ρu)/(1−ρ) with u = τ, for failures were injected just before a checkpoint.
fn catch_up(t0_s: f64, capacity: f64, r: Row) -> f64 {
    let rho = r.rows_per_s / capacity;
    super::fluid::outage_s(t0_s + rho * r.interval_s, rho).unwrap_or(1e9)
}

/// T0 and capacity with the least mean relative error, by a grid that is refined thrice.
fn fit(train: &[Row]) -> (f64, f64) {
    let error = |t0, mu| train.iter().map(|r| (catch_up(t0, mu, *r) / r.outage_s - 1.0).abs()).sum::<f64>();
    let (mut t0, mut mu, mut dt, mut dm) = (100.0, 45_000.0, 12.0, 2000.0);
    for _ in 0..4 {
        let mut best = (f64::INFINITY, t0, mu);
        for i in -7..=7 {
            for j in -7..=7 {
                let (a, b) = (t0 + dt * f64::from(i), mu + dm * f64::from(j));
                let e = error(a, b);
                if e < best.0 {
                    best = (e, a, b);
                }
            }
        }
        (t0, mu) = (best.1, best.2);
        (dt, dm) = (dt / 4.0, dm / 4.0);
    }
    (t0, mu)
}

/// Least squares of the outage on interval and rate: what one would fit without a model.
fn linear(train: &[Row]) -> [f64; 3] {
    let mut a = [[0.0f64; 4]; 3];
    for r in train {
        let x = [1.0, r.interval_s, r.rows_per_s / 1e4];
        for i in 0..3 {
            for j in 0..3 {
                a[i][j] += x[i] * x[j];
            }
            a[i][3] += x[i] * r.outage_s;
        }
    }
    for i in 0..3 {
        let p = (i..3).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs())).unwrap();
        a.swap(i, p);
        let pivot = a[i];
        for (k, row) in a.iter_mut().enumerate() {
            if k != i {
                let f = row[i] / pivot[i];
                row.iter_mut().zip(pivot).for_each(|(x, p)| *x -= f * p);
            }
        }
    }
    [0, 1, 2].map(|i| a[i][3] / a[i][i])
}

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    f64::midpoint(x[(x.len() - 1) / 2], x[x.len() / 2])
}

#[test]
fn predicts_the_other_half_of_published_failures() {
    let Some(all) = rows() else { return };
    assert_eq!(all.len(), 60);
    let (mut ours, mut theirs) = (0.0, 0.0);
    for seed in 0..200 {
        let mut rng = rng(seed);
        let mut x = all.clone();
        for i in (1..x.len()).rev() {
            x.swap(i, rng.random_range(0..=i));
        }
        let (train, test) = x.split_at(30);
        let (t0, mu) = fit(train);
        let [a, b, c] = linear(train);
        ours += median(test.iter().map(|r| (catch_up(t0, mu, *r) / r.outage_s - 1.0).abs()).collect()) / 200.0;
        theirs += median(
            test.iter().map(|r| ((a + b * r.interval_s + c * r.rows_per_s / 1e4) / r.outage_s - 1.0).abs()).collect(),
        ) / 200.0;
    }
    println!("median error of the held half, mean of 200 splits: catch-up law {ours:.4}, linear {theirs:.4}");
    assert!(ours < 0.10, "{ours}");
    assert!(theirs > 3.0 * ours, "{theirs}");
}
