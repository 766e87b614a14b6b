//! The queries. `bid`, `auction` and `person` are the Nexmark tables, `keyed` the one with many keys.

/// Nexmark q1: currency conversion of every bid.
pub const Q1: &str = "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid";

/// Count and sum over a million keys.
pub const GROUP_BY: &str = "SELECT k, count(*) AS c, sum(v) AS s FROM keyed GROUP BY k";

/// Nexmark q4: average winning price per category.
pub const Q4: &str = "SELECT q.category, avg(q.final) AS final FROM (
    SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q
  GROUP BY q.category";

/// Nexmark q5: auctions with the most bids per sliding window.
pub const Q5: &str = "SELECT c.auction, c.num FROM (
    SELECT auction, count(*) AS num, window_start AS starttime
    FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds') GROUP BY auction, window_start) c
  JOIN (SELECT max(n.num) AS maxn, n.starttime FROM (
      SELECT count(*) AS num, window_start AS starttime
      FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds') GROUP BY auction, window_start) n
    GROUP BY n.starttime) m
  ON c.starttime = m.starttime AND c.num = m.maxn";

/// Nexmark q9 without its tie-break by time: the winning bids of every auction.
pub const Q9: &str = "SELECT a.id, a.seller, b.bidder, b.price, b.date_time FROM auction a
  JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  JOIN (SELECT a.id AS id, max(b.price) AS top FROM auction a JOIN bid b ON a.id = b.auction
        WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id) w
  ON w.id = a.id AND b.price = w.top";

/// Queries over endless bids whose state does not grow, since the watermark closes windows.
pub const FREED: &[(&str, &str)] = &[
    (
        "tumbling window",
        "SELECT auction, window_start, count(*) AS bids, max(price) AS price \
         FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY auction, window_start EMIT ON WINDOW CLOSE",
    ),
    (
        "session window",
        "SELECT bidder, window_start, window_end, count(*) AS bids \
         FROM SESSION(bid PARTITION BY bidder, date_time, INTERVAL '2 seconds') \
         GROUP BY bidder, window_start, window_end EMIT ON WINDOW CLOSE",
    ),
    (
        "interval join",
        "SELECT a.auction, a.bidder, a.price, b.date_time FROM bid a JOIN bid b \
         ON a.auction = b.auction AND a.bidder = b.bidder AND a.price = b.price \
         AND b.date_time > a.date_time AND b.date_time < a.date_time + INTERVAL '1 second'",
    ),
];
