-- The bank's inventory as the crew found it. Everything in it is made up.
CREATE TABLE cameras (
    id INTEGER PRIMARY KEY,
    location TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('online', 'offline', 'maintenance')),
    last_seen TEXT NOT NULL
);
CREATE TABLE guards (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    post TEXT NOT NULL,
    shift_start TEXT NOT NULL,
    shift_end TEXT NOT NULL
);
CREATE TABLE vault_boxes (
    number INTEGER PRIMARY KEY,
    holder TEXT NOT NULL,
    size TEXT NOT NULL CHECK (size IN ('small', 'medium', 'large')),
    insured_eur INTEGER NOT NULL
);
CREATE TABLE access_log (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    door TEXT NOT NULL,
    guard_id INTEGER REFERENCES guards (id),
    granted INTEGER NOT NULL CHECK (granted IN (0, 1))
);

INSERT INTO cameras VALUES
    (1, 'lobby', 'online', '2026-03-14T21:58:04Z'),
    (2, 'vault corridor east', 'online', '2026-03-14T21:58:05Z'),
    (3, 'vault corridor north', 'offline', '2026-03-02T04:11:37Z'),
    (4, 'loading dock', 'online', '2026-03-14T21:58:04Z'),
    (5, 'boiler room', 'maintenance', '2026-03-13T16:20:00Z'),
    (6, 'roof', 'offline', '2026-02-27T23:02:12Z');

INSERT INTO guards VALUES
    (1, 'Okafor', 'lobby', '22:00', '06:00'),
    (2, 'Lindqvist', 'vault corridor', '22:00', '02:00'),
    (3, 'Moreau', 'loading dock', '23:30', '06:00'),
    (4, 'Brandt', 'vault corridor', '02:00', '06:00'),
    (5, 'Sato', 'control room', '03:15', '06:00');

INSERT INTO vault_boxes VALUES
    (101, 'Aurora Shipping', 'large', 1850000),
    (102, 'E. Castellanos', 'small', 42000),
    (103, 'Fjord Mineral AS', 'medium', 610000),
    (104, 'Private, name withheld', 'large', 3200000),
    (105, 'Harbour Museum (loan)', 'medium', 975000),
    (106, 'E. Castellanos', 'small', 18500);

INSERT INTO access_log VALUES
    (1, '2026-03-13T22:04:11Z', 'vault corridor', 2, 1),
    (2, '2026-03-14T02:00:52Z', 'control room', 4, 1),
    (3, '2026-03-14T02:09:30Z', 'vault corridor', 4, 1),
    (4, '2026-03-14T03:41:08Z', 'vault', 4, 0),
    (5, '2026-03-14T06:12:00Z', 'control room', 5, 1);
