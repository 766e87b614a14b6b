WITH counted AS (
    SELECT auction, slot AS starttime, count(*) AS num
    FROM (SELECT auction, unnest(generate_series(
              date_bin(INTERVAL '2 seconds', date_time) - INTERVAL '8 seconds',
              date_bin(INTERVAL '2 seconds', date_time), INTERVAL '2 seconds')) AS slot FROM bid) AS b
    GROUP BY auction, slot)
SELECT c.auction, c.num
FROM counted c JOIN (SELECT max(num) AS maxn, starttime FROM counted GROUP BY starttime) m
ON c.starttime = m.starttime AND c.num >= m.maxn
