SELECT bidder, count(*) AS bid_count, date_bin(INTERVAL '10 seconds', date_time) AS starttime
FROM bid
GROUP BY bidder, date_bin(INTERVAL '10 seconds', date_time)
