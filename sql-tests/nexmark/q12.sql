-- Bids of a user in ten seconds; by event time, since processing time is not the same on every run.
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
