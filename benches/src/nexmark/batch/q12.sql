SELECT bidder, count(*) AS bid_count, date_bin(INTERVAL '10 seconds', date_time) AS starttime,
       date_bin(INTERVAL '10 seconds', date_time) + INTERVAL '10 seconds' AS endtime
FROM bid
GROUP BY bidder, date_bin(INTERVAL '10 seconds', date_time)
