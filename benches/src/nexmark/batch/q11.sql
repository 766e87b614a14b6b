SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime, max(date_time) + INTERVAL '10 seconds' AS endtime
FROM (
    SELECT bidder, date_time,
           sum(starts) OVER (PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS session
    FROM (
        SELECT bidder, date_time,
               CASE WHEN date_time < lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time)
                        + INTERVAL '10 seconds' THEN 0 ELSE 1 END AS starts
        FROM bid) AS marked) AS numbered
GROUP BY bidder, session
