-- Hot items: the auctions with the most bids of every sliding window.
SELECT bids.auction, bids.num
FROM (
    SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime
    FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
    GROUP BY auction, window_start, window_end) AS bids
JOIN (
    SELECT max(countbids.num) AS maxn, countbids.starttime, countbids.endtime
    FROM (
        SELECT count(*) AS num, window_start AS starttime, window_end AS endtime
        FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
        GROUP BY auction, window_start, window_end) AS countbids
    GROUP BY countbids.starttime, countbids.endtime) AS maxbids
ON bids.starttime = maxbids.starttime AND bids.endtime = maxbids.endtime AND bids.num >= maxbids.maxn
